"""What does `run-scheduler` ask for, as a manifest of ours?

Its containers had three folders: /custom, /snapshots and /data. In a container they are still there; without one
the variables SWELL_CUSTOM_DIR, SWELL_SNAPSHOTS_DIR and SWELL_DATA_DIR name the real folders.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected

CUSTOM, SNAPSHOTS, DATA = "/custom", "/snapshots", "/data"
HOURS_MIN = 1.0  # exclusive, as it always was
PORTS = re.compile(r"([0-9]{1,5}):([0-9]{1,5})")
PORT_MAX = 65535


SWITCH = {"true": True, "yes": True, "on": True, "1": True, "t": True, "y": True}
SWITCH |= {"false": False, "no": False, "off": False, "0": False, "f": False, "n": False}


def read_switch(text: str) -> bool | None:
    """As people write it; None: it is neither yes nor no."""
    return SWITCH.get(text.strip().lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A job in the words of run-scheduler; folders are absolute."""

    name: str
    script_path: str
    image: str | None = None  #: None: a plain process
    custom_dir: str | None = None
    snapshots_dir: str | None = None  #: None: the job's folder for checkpoints
    data_dir: str | None = None
    batch_size: int | None = None
    training_set_size: int | None = None
    max_epochs: int | None = None
    is_single_gpu: bool | None = None  #: None: not said
    disable_gpu_sharing: bool = False
    estimated_memory_mib: int | None = None
    port_mapping: str | None = None  #: nodePort:containerPort, several with commas
    est_nhours: float | None = None
    reports: bool | None = None  #: its script uses the library, so it can be scaled; None: nobody could look into it


def render_manifest(
    job: Scheduled, *, gpus_per_node: int, library: str | None = None, pythonpath: str = "", python: str = "python"
) -> dict[str, Any]:
    """`library`: the folder of ours that goes before any other on PYTHONPATH; None: it is not installed here.

    A container has our library anyway, and nothing of the caller's environment.
    """
    if job.est_nhours is not None and not job.est_nhours > HOURS_MIN:
        raise Rejected(
            f"est_nhours is {job.est_nhours:g}, but must be more than {HOURS_MIN:g}; leave it out to guess none"
        )
    spec = {
        "command": [python, _script(job)],
        "cpus": 0,  # CPUs are a pool that all jobs share
        **_gpus(job, gpus_per_node),
        "epochs": job.max_epochs,
        "hours": None if job.est_nhours is None else f"{job.est_nhours:g}",
        "env": _variables(job, library, pythonpath),
        **(_container(job) if job.image else _process(job)),
    }
    given = {field: value for field, value in spec.items() if value is not None}
    return {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": given}


def shares_a_gpu(job: Scheduled) -> bool:
    """One that says what it needs and does not scale shares, as was recommended, unless it does not want to."""
    may_share = job.estimated_memory_mib is not None and not job.disable_gpu_sharing
    return may_share and (bool(job.is_single_gpu) or not job.reports)


def has_one_gpu(job: Scheduled) -> bool:
    """Scripts that cannot be scaled would hold all that is free when they start until they end; unless asked for."""
    return job.reports is False if job.is_single_gpu is None else job.is_single_gpu


def _gpus(job: Scheduled, gpus_per_node: int) -> dict[str, Any]:
    """Whole ones have at least what it needs, by its guess, however many it gets."""
    if shares_a_gpu(job):
        return {"gpuMemory": f"{job.estimated_memory_mib}MiB"}
    gpus = 1 if has_one_gpu(job) else f"1..{max(1, gpus_per_node)}"
    if job.estimated_memory_mib is None:
        return {"gpus": gpus}
    return {"gpus": gpus, "gpuMemory": f"{job.estimated_memory_mib}MiB", "exclusive": True}


def _script(job: Scheduled) -> str:
    base = CUSTOM if job.image and job.custom_dir is not None else job.custom_dir
    return local_script(job.script_path, base)


def local_script(script: str, custom_dir: str | None) -> str:
    """It may be named as a container sees it, or relative to the custom folder."""
    if custom_dir is None:
        return script
    path = PurePosixPath(script)
    inside = path.relative_to(CUSTOM) if path.is_relative_to(CUSTOM) else path
    return str(PurePosixPath(custom_dir) / inside)


def _variables(job: Scheduled, library: str | None, pythonpath: str) -> dict[str, str]:
    folders = (CUSTOM, SNAPSHOTS, DATA) if job.image else (job.custom_dir, job.snapshots_dir, job.data_dir)
    has = (job.custom_dir, job.snapshots_dir, job.data_dir)
    names = ("SWELL_CUSTOM_DIR", "SWELL_SNAPSHOTS_DIR", "SWELL_DATA_DIR")
    told: dict[str, Any] = {
        "BATCH_SIZE": job.batch_size,
        "TRAINING_SET_SIZE": job.training_set_size,
        "RESERVED_MEM": job.estimated_memory_mib,
        **{name: folder for name, folder, given in zip(names, folders, has, strict=True) if given is not None},
    }
    if library is not None and not job.image:
        told["PYTHONPATH"] = f"{library}:{pythonpath}" if pythonpath else library
    return {name: str(value) for name, value in told.items() if value is not None}


def _process(job: Scheduled) -> dict[str, Any]:
    if job.port_mapping is not None:
        raise Rejected("port_mapping needs an image: without a container a job's ports are this machine's own")
    return {"workdir": job.custom_dir}


def _container(job: Scheduled) -> dict[str, Any]:
    folders = {CUSTOM: job.custom_dir, SNAPSHOTS: job.snapshots_dir, DATA: job.data_dir}
    mounts = [f"{source}:{target}" for target, source in folders.items() if source is not None]
    ports = None if job.port_mapping is None else [_port(pair) for pair in job.port_mapping.split(",")]
    workdir = None if job.custom_dir is None else CUSTOM
    return {"image": job.image, "mounts": mounts or None, "ports": ports, "workdir": workdir}


def _port(pair: str) -> str:
    match = PORTS.fullmatch(pair.strip())
    if match is None or not all(1 <= int(port) <= PORT_MAX for port in match.groups()):
        raise Rejected(f"port_mapping {pair!r} is not nodePort:containerPort; write 8888:80, several with commas")
    return pair.strip()
