"""What does a task see in its environment?

The caller's environment, then the job's own variables, then ours. Which of them speak of ranks is in
`model/task_environment.py`; docs/environment.md has the whole table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swell.model.cluster import BackendJob
from swell.model.launch import Launch, LaunchRole
from swell.model.task_environment import (
    DEFAULTS,
    OF_ONE_ATTEMPT,
    OF_ONE_RANK,
    OURS,
    TF_TASKS_MAX,
    attempt_variables,
    rank_variables,
)

IN_CONTAINERS = frozenset({"aws-batch", "azure-batch", "kubernetes"})  # backends whose workers run in an image
SEARCHED = frozenset({"PATH", "LD_LIBRARY_PATH"})
FOLDERS = frozenset({"HOME", "TMPDIR"})
OF_A_PROCESS = frozenset({"HOSTNAME", "OLDPWD", "PWD", "SHLVL", "TERM", "_"})
CA_CHARACTERS_MAX = 32 * 1024  # in one variable, of which the kernel takes 128 KiB
LOOPBACK = "127.0.0.1"  # where the ranks of a gang on one machine meet


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """How a server elsewhere is reached from this machine."""

    url: str
    fingerprint: str | None  #: of its certificate; None: somebody vouches for it
    ca: str = ""  #: certificates in PEM of who vouches for it, or their file; empty: whom a machine trusts

    def variables(self, own: Mapping[str, str]) -> dict[str, str]:
        """What an attempt is told of where to report, if it runs here and not beside the server."""
        told = own.get("SWELL_URL")
        if not told:
            return dict(own)
        left_out = ("SWELL_JOBS_SOCKET", "SWELL_URL_FINGERPRINT", "SWELL_URL_CA")
        seen = {name: self._elsewhere(text, told) for name, text in own.items() if name not in left_out}
        trust = {"SWELL_URL_FINGERPRINT": self.fingerprint or "", "SWELL_URL_CA": self.ca}
        return {**seen, **{name: text for name, text in trust.items() if text}}

    def _elsewhere(self, text: str, told: str) -> str:
        return self.url + text.removeprefix(told) if text.startswith(told) else text


def read_ca(path: Path | None) -> str:
    """The certificates themselves, because a container lacks the file; of a large bundle its path. Empty: no file."""
    if path is None:
        return ""
    text = path.read_text()
    return text if len(text) <= CA_CHARACTERS_MAX else str(path)


def image_variables(environ: Mapping[str, str], backend: BackendJob | None) -> dict[str, str]:
    """What the image of a worker in a container sets for its programs, and the backend for its jobs (the credentials of
    their role). Empty: the worker is in none.
    """
    if backend is None or backend.backend not in IN_CONTAINERS:
        return {}
    left_out = OURS | OF_ONE_RANK | OF_A_PROCESS
    return {name: text for name, text in environ.items() if name not in left_out and not name.startswith("SWELL_")}


def with_image(caller: Mapping[str, str], image: Mapping[str, str]) -> dict[str, str]:
    """What the caller has set goes before what the image sets, but for folders that are not there.

    Of programs and libraries those of folders that only the caller names are found first, then the image's.
    """
    if not image:
        return dict(caller)
    found = {**image, **{name: text for name, text in caller.items() if name not in FOLDERS or Path(text).is_dir()}}
    for name in SEARCHED & image.keys():
        known = image[name].split(":")
        own = [folder for folder in caller.get(name, "").split(":") if folder and folder not in known]
        found[name] = ":".join([*own, *known])
    return found


def run_variables(
    launch: Launch,
    caller: dict[str, str],
    *,
    store: str,
    port: int,
    server: ServerSeen | None = None,
    library: str = "",
) -> dict[str, str]:
    """What all tasks of a launch share. `port`: free on this machine; `server`: None if it is on this machine;
    `library`: the folder of the in-job library, empty if there is none.
    """
    own = dict(launch.own) if server is None else server.variables(dict(launch.own))
    meeting = launch.rendezvous
    inherited = {name: text for name, text in caller.items() if name not in OF_ONE_ATTEMPT | OF_ONE_RANK}
    return {
        **DEFAULTS,
        **inherited,
        **{name: text for name, text in launch.env if name not in OURS},
        **own,
        "SWELL_STORE": store,
        **attempt_variables(
            launch.attempt,
            store=store,
            name=launch.name,
            tasks=launch.world_size,
            nodes=launch.nodes,
            is_array=launch.is_array,
        ),
        "NODE_RANK": str(launch.nodes.index(launch.node)),
        "MASTER_ADDR": LOOPBACK if meeting is None else meeting.address_of(0),
        "MASTER_PORT": str(port if meeting is None else meeting.port),
        "SWELL_HOSTS": ",".join(f"{_bracketed(address)}:{count}" for address, count in _ranks_by_host(launch)),
        **({"SWELL_SDK": library} if library else {}),
    }


def task_variables(
    shared: dict[str, str],
    launch: Launch,
    role: LaunchRole,
    *,
    index: int,
    local_rank: int,
    devices: tuple[str, ...],
) -> dict[str, str]:
    """What is this task's own. An array's task is alone; its index says which part is its."""
    world_size = 1 if launch.is_array else launch.world_size
    ranks = rank_variables(
        launch.ranks,
        rank=index,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=len(launch.lanes),
        node_rank=launch.nodes.index(launch.node),
    )
    numbers = {one.name: str(one.of(index - role.first_rank)) for one in role.numbered}
    given = {"JOB_COMPLETION_INDEX": str(index), **dict(role.env), **numbers}
    found = {
        **shared,
        **{name: text for name, text in given.items() if name not in OURS},
        "NUM_GPUS": str(len(devices)),
        "PL_TORCH_DISTRIBUTED_BACKEND": "nccl" if devices and not devices[0].startswith("sim-") else "gloo",
        "SWELL_TASK_INDEX": str(index),
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        **ranks,
    }
    if world_size > TF_TASKS_MAX:
        found.pop("TF_CONFIG", None)  # the caller's, which is of another cluster
        return found
    hosts = _hosts(launch, world_size)
    return {**found, "TF_CONFIG": _tf_config(shared, hosts, 0 if launch.is_array else index)}


def _hosts(launch: Launch, world_size: int) -> list[str]:
    """The address of each rank's machine."""
    meeting = launch.rendezvous
    return [LOOPBACK if meeting is None else meeting.address_of(rank) for rank in range(world_size)]


def _ranks_by_host(launch: Launch) -> list[tuple[str, int]]:
    """Each machine's address with its number of ranks, in the order of ranks: what `mpirun --host` takes."""
    world_size = 1 if launch.is_array else launch.world_size
    return list(Counter(_hosts(launch, world_size)).items())


def hostfile(launch: Launch) -> str:
    """The same for `mpirun --hostfile`. Addresses: the machines' names need not resolve."""
    return "".join(f"{address} slots={count}\n" for address, count in _ranks_by_host(launch))


def _bracketed(address: str) -> str:
    """As it stands before a colon: the number of an IPv6 host has colons of its own."""
    return f"[{address}]" if ":" in address else address


def _tf_config(shared: dict[str, str], hosts: list[str], rank: int) -> str:
    """TensorFlow wants every worker's address: the ports from the gang's own upwards."""
    first = int(shared["MASTER_PORT"])
    workers = [f"{_bracketed(host)}:{first + n}" for n, host in enumerate(hosts)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def known_variables(launch: Launch, caller: dict[str, str]) -> dict[str, str]:
    """The caller's. What is true of their machine is not of an image, but the job may name secrets."""
    if launch.container is None:
        return caller
    return {name: caller[name] for name in launch.handed if name in caller}
