"""What has Swell told this task?

Reads the variables once, forgives their absence: outside Swell a script sees rank 0 of 1 and runs all the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple


@dataclass(frozen=True)
class Environment:
    """Rank and count always come together, also for a job of one task, and outside Swell."""

    job_id: Optional[str]  #: None: not started by Swell
    job_name: str
    attempt: int  #: which life of the job this is, from 1
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    num_nodes: int
    index: int  #: this task's index in its array; the rank in a gang
    count: int  #: tasks of the whole job
    num_gpus: int
    devices: Tuple[str, ...]
    master_addr: str
    master_port: int
    restarted: bool
    url: str = ""  #: where to report; empty: nowhere
    fingerprint: str = ""  #: SHA-256 of the server's certificate, which nobody vouches for; empty: ask those who do
    ca: str = ""  #: certificates in PEM that vouch for the server, or the file that has them; empty: the machine's
    token: str = field(default="", repr=False)
    socket: str = ""  #: a Unix socket to report through instead of the address; empty: none
    attempt_id: str = ""  #: "12.3": the third life of job 12
    checkpoints: str = ""  #: the job's folder for checkpoints; empty: not told
    checkpoint: str = ""  #: the last one that was reported; empty: none, or the job finds it by itself
    width: int = 1  #: GPUs of the one task, or tasks
    grace_s: float = 30.0  #: between SIGTERM and SIGKILL
    checkpoint_every_s: float = 0.0  #: how often it is to be saved inside an epoch, too; 0: as the script does
    epochs_done: int = 0  #: epochs that are durable
    steps_done: int = 0  #: steps of the next epoch that are durable, as the earlier attempt counted them
    steps_total: Optional[int] = None  #: of that epoch at the earlier attempt's width; None: not known
    samples_done: Optional[int] = None  #: samples of that epoch that are durable; None: only steps were counted
    epochs_total: Optional[int] = None  #: None: the job's file does not say
    last_words: str = ""  #: a file in which to leave a last report that the server did not hear; empty: none
    has_launcher: bool = False  #: one of several ranks of its task, which is ended by whoever started them
    waits_to_be_stopped: bool = False  #: asked to yield, it is ended from outside: its exit code would be a verdict

    @property
    def is_managed(self) -> bool:
        """Was this process started by Swell?"""
        return self.job_id is not None

    @property
    def can_report(self) -> bool:
        """Is there a server that wants to hear from this process?"""
        return bool(self.url and self.token and self.attempt_id)


def read_environment(environ: Optional[Mapping[str, str]] = None) -> Environment:
    """From `os.environ`, or from what is given. A variable that cannot be read counts as absent."""
    source = os.environ if environ is None else environ
    devices = tuple(part for part in source.get("CUDA_VISIBLE_DEVICES", "").split(",") if part)
    rank = _number(source, "RANK", 0)
    world_size = _number(source, "WORLD_SIZE", 1)
    num_gpus = _number(source, "NUM_GPUS", len(devices))
    epochs_total = _number(source, "EPOCHS_TO_BE_DONE", -1)
    return Environment(
        job_id=source.get("SWELL_JOB_ID") or None,
        job_name=source.get("SWELL_JOB_NAME", ""),
        attempt=_attempt(source.get("SWELL_ATTEMPT", "")),
        rank=rank,
        world_size=world_size,
        local_rank=_number(source, "LOCAL_RANK", 0),
        local_world_size=_number(source, "LOCAL_WORLD_SIZE", 1),
        node_rank=_number(source, "NODE_RANK", 0),
        num_nodes=_number(source, "NUM_NODES", 1),
        index=_number(source, "JOB_COMPLETION_INDEX", rank),
        count=_number(source, "SWELL_TASK_COUNT", world_size),
        num_gpus=num_gpus,
        devices=devices,
        master_addr=source.get("MASTER_ADDR", "127.0.0.1"),
        master_port=_number(source, "MASTER_PORT", 29500),
        restarted=source.get("JOB_RESTARTED", "FALSE").upper() == "TRUE",
        url=source.get("SWELL_URL", ""),
        fingerprint=source.get("SWELL_URL_FINGERPRINT", ""),
        ca=source.get("SWELL_URL_CA", ""),
        token=source.get("SWELL_TOKEN", ""),
        socket=source.get("SWELL_JOBS_SOCKET", ""),
        attempt_id=source.get("SWELL_ATTEMPT", ""),
        checkpoints=source.get("SWELL_CHECKPOINTS", ""),
        checkpoint=source.get("SWELL_CHECKPOINT", ""),
        width=_number(source, "SWELL_WIDTH", max(num_gpus, world_size)),
        grace_s=_seconds(source, "SWELL_GRACE_S", 30.0),
        checkpoint_every_s=max(0.0, _seconds(source, "SWELL_CHECKPOINT_EVERY_S", 0.0)),
        epochs_done=max(0, _number(source, "EPOCHS_DONE", 0)),
        steps_done=max(0, _number(source, "SWELL_STEPS_DONE", 0)),
        steps_total=_count(source, "SWELL_STEPS_TOTAL"),
        samples_done=_count(source, "SWELL_SAMPLES_DONE"),
        epochs_total=None if epochs_total < 0 else epochs_total,
        last_words=source.get("SWELL_LAST_WORDS", ""),
        has_launcher=_has_launcher(source),
        waits_to_be_stopped=source.get("SWELL_ON_YIELD", "") == "wait",
    )


def _has_launcher(source: Mapping[str, str]) -> bool:
    """torchrun leaves a mark. Swell gives the only task of a job no local rank, so there a launcher has done it."""
    is_alone = _number(source, "SWELL_TASK_COUNT", 0) == 1
    return "TORCHELASTIC_RUN_ID" in source or (is_alone and "LOCAL_RANK" in source)


def _number(source: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(source[name])
    except (KeyError, ValueError):
        return default


def _count(source: Mapping[str, str], name: str) -> Optional[int]:
    """None: it is not told, or cannot be one."""
    number = _number(source, name, -1)
    return None if number < 0 else number


def _seconds(source: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(source[name])
    except (KeyError, ValueError):
        return default


def _attempt(text: str) -> int:
    number = text.rpartition(".")[2]
    return int(number) if number.isdecimal() else 1
