"""What is a worker told when it is started?

One table of flags: `swell worker` takes them, the server renders them for the worker of its own machine, and whoever
starts workers elsewhere (a batch system's job script) renders them too. A worker needs the server's address, a token
and a folder of its own; all the rest has defaults.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from swell.errors import Rejected
from swell.model.launch import ADDRESS, LEASE_S_RANGE, NODE_NAME, TAG
from swell.model.quantity import BadQuantity, parse_cpus, parse_memory, parse_number

UNIX = "unix:"  # before the path of a server's socket on this machine
WORKER_LEASE_S = 600.0  # longer than any restart of a server
CHECK_IN_S = 25.0  # a proxy cuts a request that has no answer after 30 s
SECONDS_MAX = 1e9  # thirty years
CHECK_IN_S_MAX = 55.0  # a worker that is silent for a minute is out of reach
COUNT = re.compile(r"[0-9]{1,9}")


class FlagKind(Enum):
    """What stands after a flag."""

    TEXT = "text"
    PATH = "path"
    CPUS = "cpus"
    MEMORY = "memory"
    COUNT = "count"
    SECONDS = "seconds"
    PAUSE = "pause"  # seconds, or 0
    NAME = "name"
    ADDRESS = "address"
    TAG = "tag"
    SWITCH = "switch"  # nothing


@dataclass(frozen=True, slots=True)
class Flag:
    name: str  #: without the dashes
    field: str  #: of WorkerOptions
    kind: FlagKind
    metavar: str
    help: str
    is_own: bool = False  #: for the worker that a server starts on its own machine
    is_secret: bool = False  #: what stands after it is repeated nowhere


FLAGS = (
    Flag("server", "server", FlagKind.TEXT, "URL", "Address of the server, for example https://box.lab:8443."),
    Flag("token-file", "token_file", FlagKind.PATH, "FILE", "File with a token of the scope worker."),
    Flag("folder", "folder", FlagKind.PATH, "DIR", "Folder of this worker, on a local disk."),
    Flag("name", "name", FlagKind.NAME, "NAME", "Name of this machine in `swell nodes`.  [default: its host name]"),
    Flag(
        "address", "address", FlagKind.ADDRESS, "HOST", "Address of this machine for tasks on others.  [default: found]"
    ),
    Flag("fingerprint", "fingerprint", FlagKind.TEXT, "SHA256", "SHA-256 fingerprint of the server's certificate."),
    Flag(
        "ca", "ca", FlagKind.PATH, "FILE", "CA certificates for the server, in PEM.  [default: those of this machine]"
    ),
    Flag(
        "insecure-http",
        "insecure_http",
        FlagKind.SWITCH,
        "",
        "Send the token over plain HTTP, where anyone can read it.",
    ),
    Flag("cpus", "cpus_milli", FlagKind.CPUS, "N", "CPUs to offer.  [default: all of the machine or of the batch job]"),
    Flag("memory", "memory_mib", FlagKind.MEMORY, "SIZE", "Memory to offer.  [default: as for --cpus]"),
    Flag("gpus", "gpus", FlagKind.COUNT, "N", "Offer simulated GPUs instead of the real ones."),
    Flag("gpu-memory", "gpu_memory_mib", FlagKind.MEMORY, "SIZE", "Memory of each simulated GPU."),
    Flag(
        "container-command",
        "container_command",
        FlagKind.TEXT,
        "WORDS",
        "Command that runs containers.  [default: podman, else docker]",
    ),
    Flag("container-options", "container_options", FlagKind.TEXT, "WORDS", "Options for each container."),
    Flag(
        "task-processes-max",
        "task_processes_max",
        FlagKind.COUNT,
        "N",
        "Maximum number of processes and threads of one task.",
    ),
    Flag("tag", "tag", FlagKind.TAG, "TAG", "Tag that jobs can ask for."),
    Flag("tag-exclusive", "tag_exclusive", FlagKind.SWITCH, "", "Accept only jobs that ask for the tag."),
    Flag("group", "group", FlagKind.TAG, "GROUP", "Accept only jobs of the users in this group of the server."),
    Flag("idle-seconds", "idle_s", FlagKind.SECONDS, "N", "Exit after N seconds without a task.  [default: never]"),
    Flag("exit-after-num-runs", "runs_max", FlagKind.COUNT, "N", "Exit after N attempts of jobs.  [default: never]"),
    Flag("exit-on-exception", "exits_on_exception", FlagKind.SWITCH, "", "Exit when the worker itself fails."),
    Flag(
        "pass-down-termination",
        "passes_termination",
        FlagKind.SWITCH,
        "",
        "On SIGTERM, stop the tasks and requeue their jobs.",
    ),
    Flag(
        "preemptible",
        "preemptible",
        FlagKind.SWITCH,
        "",
        "This machine may disappear; implies --pass-down-termination.",
    ),
    Flag(
        "spot-notice",
        "spot_notice",
        FlagKind.SWITCH,
        "",
        "Stop the tasks and leave when EC2 announces that it takes this machine back.",
    ),
    Flag("max-work-dir-size", "folder_mib_max", FlagKind.MEMORY, "SIZE", "Accept no jobs while the folder is larger."),
    Flag(
        "delete-work-dir-on-exit",
        "deletes_folder",
        FlagKind.SWITCH,
        "",
        "Remove what the worker has made in its folder when it leaves.",
    ),
    Flag(
        "cache",
        "cache",
        FlagKind.PATH,
        "DIR",
        "Folder for fetched files; several workers may share it.  [default: own]",
    ),
    Flag(
        "max-fetch-retries",
        "fetch_retries_max",
        FlagKind.COUNT,
        "N",
        "Fail a job whose files still cannot be fetched after N retries.  [default: retry until they can]",
    ),
    Flag(
        "max-cache-size",
        "cache_mib_max",
        FlagKind.MEMORY,
        "SIZE",
        "Maximum size of the cache.  [default: 50GiB, on a smaller disk a tenth of it, but at least 10 GB]",
    ),
    Flag(
        "checkin-frequency-seconds",
        "check_in_s",
        FlagKind.SECONDS,
        "N",
        f"Longest time between two check-ins.  [default: {CHECK_IN_S:g}]",
    ),
    Flag(
        "lease-seconds",
        "lease_s",
        FlagKind.SECONDS,
        "N",
        f"Stop the tasks after N seconds without the server.  [default: {WORKER_LEASE_S:g}]",
    ),
    Flag("users-runtime", "users_runtime", FlagKind.PATH, "DIR", "Run tasks as their users.", is_own=True),
    Flag("jobs-sockets", "jobs_sockets", FlagKind.PATH, "DIR", "Has the socket that jobs report to.", is_own=True),
)


def host_name() -> str:
    """What this machine is called where nobody has said otherwise; a name that no node may have is changed."""
    usable = re.sub("[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("._-")
    return usable or "localhost"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    server: str  #: an https URL, or unix:PATH
    token_file: Path
    folder: Path
    name: str | None = None  #: None: the host name
    address: str | None = None  #: None: that of the connection to the server
    fingerprint: str | None = None  #: None: somebody vouches for the server's certificate
    ca: Path | None = None  #: None: whom this machine trusts
    insecure_http: bool = False
    cpus_milli: int | None = None  #: None: what there is
    memory_mib: int | None = None  #: None: what there is
    gpus: int | None = None  #: None: what there is
    gpu_memory_mib: int | None = None  #: None: the usual
    container_command: str | None = None  #: None: podman or docker
    container_options: str | None = None
    task_processes_max: int | None = None  #: None: the usual
    tag: str | None = None
    tag_exclusive: bool = False
    group: str | None = None  #: None: that of its token, if it has one; else jobs of everybody
    idle_s: float | None = None  #: None: it stays
    runs_max: int | None = None  #: None: it stays
    exits_on_exception: bool = False
    passes_termination: bool = False
    preemptible: bool = False
    spot_notice: bool = False  #: asks EC2 every few seconds whether the machine is taken back
    folder_mib_max: int | None = None  #: None: no limit
    deletes_folder: bool = False  #: nobody comes back to it
    cache: Path | None = None  #: None: one in its own folder
    cache_mib_max: int | None = None  #: None: by the size of the disk
    fetch_retries_max: int | None = None  #: None: until it works, or cannot
    check_in_s: float = CHECK_IN_S
    lease_s: float = WORKER_LEASE_S
    users_runtime: Path | None = None  #: None: tasks run as the worker itself
    jobs_sockets: Path | None = None  #: None: jobs report to the server's address

    def words(self) -> list[str]:
        """The command line that says the same."""
        return list(_words(self))

    @property
    def is_remote(self) -> bool:
        return not self.server.startswith(UNIX)

    @property
    def stops_tasks_on_termination(self) -> bool:
        return self.passes_termination or self.preemptible


DEFAULTS = {field.name: field.default for field in fields(WorkerOptions)}


def _words(options: WorkerOptions) -> Iterator[str]:
    for flag in FLAGS:
        value = getattr(options, flag.field)
        if value is None or value is False or value == DEFAULTS[flag.field]:
            continue
        yield f"--{flag.name}"
        if flag.kind is not FlagKind.SWITCH:
            yield _text(flag.kind, value)


def _text(kind: FlagKind, value: Any) -> str:
    if kind is FlagKind.CPUS:
        return f"{value}m"
    return f"{value}MiB" if kind is FlagKind.MEMORY else f"{value:g}" if kind is FlagKind.SECONDS else str(value)


def read_options(given: Mapping[str, Any]) -> WorkerOptions:
    """`given`: the text after each flag by the flag's field; None or False: it was not said."""
    said = read_flags(FLAGS, given)
    for needed in FLAGS[:3]:
        if needed.field not in said:
            raise Rejected(f"a worker needs --{needed.name} {needed.metavar}: {needed.help}")
    options = WorkerOptions(**said)
    refuse_contradictions(options)
    return options


def read_flags(flags: Iterable[Flag], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the flags that were said, by field; a flag that was not said is not in it."""
    said = {flag: given[flag.field] for flag in flags if given.get(flag.field) not in (None, False)}
    return {flag.field: _read(flag, value) for flag, value in said.items()}


def refuse_contradictions(options: WorkerOptions) -> None:
    if options.runs_max == 0:
        raise Rejected("--exit-after-num-runs 0 would let the worker leave before it has run anything; say at least 1")
    if options.tag_exclusive and options.tag is None:
        raise Rejected("--tag-exclusive keeps jobs without the tag away, and no tag is given; add --tag TAG")
    if options.check_in_s > CHECK_IN_S_MAX:
        raise Rejected(
            f"--checkin-frequency-seconds {options.check_in_s:g} is too long: a worker that is silent for a minute "
            f"counts as out of reach; say at most {CHECK_IN_S_MAX:g}"
        )
    low, high = LEASE_S_RANGE
    if not low <= options.lease_s <= high:
        raise Rejected(
            f"--lease-seconds {options.lease_s:g} is refused by servers; say a number between {low:g} and {high:g}"
        )
    if options.lease_s < 2 * options.check_in_s:
        raise Rejected(
            f"--lease-seconds {options.lease_s:g} is less than two check-ins of {options.check_in_s:g} s, so one lost "
            "answer would stop every task; say more"
        )


def _read(flag: Flag, value: Any) -> Any:
    if flag.kind is FlagKind.SWITCH:
        return True
    text = str(value)
    try:
        return _READERS[flag.kind](text)
    except (BadQuantity, ValueError) as error:
        raise Rejected(f"--{flag.name} {text[:100]!r} cannot be read: {error}") from error


def _read_seconds(text: str) -> float:
    found = parse_number(text, low=0.0, high=SECONDS_MAX)
    if found == 0:
        raise ValueError("write a number of seconds above 0")
    return found


def _matching(shape: re.Pattern[str], what: str) -> Any:
    def read(text: str) -> str:
        if not shape.fullmatch(text):
            raise ValueError(what)
        return text

    return read


_READERS: dict[FlagKind, Any] = {
    FlagKind.TEXT: str,
    FlagKind.PATH: lambda text: Path(text).expanduser().absolute(),
    FlagKind.CPUS: parse_cpus,
    FlagKind.MEMORY: parse_memory,
    FlagKind.COUNT: lambda text: int(_matching(COUNT, "write a whole number")(text)),
    FlagKind.SECONDS: _read_seconds,
    FlagKind.PAUSE: lambda text: 0.0 if text == "0" else _read_seconds(text),
    FlagKind.NAME: _matching(NODE_NAME, "write letters, digits, '.', '_' and '-'"),
    FlagKind.ADDRESS: _matching(ADDRESS, "write the name or the number of a host, without a port"),
    FlagKind.TAG: _matching(TAG, "write letters, digits and '-'"),
}
