"""What is a machine asked to run, and what has been seen of it?

These values cross the wire between server and worker as plain documents.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from swell.model import codec
from swell.model.cluster import BackendJob, DeviceId, Node, NodeId
from swell.model.codec import Variables
from swell.model.job import AttemptId, Container, IdlePolicy, Numbered, leave_out_newer
from swell.model.job_files import JobFiles
from swell.model.placement import GROUP_TAINT, Effect, Taint
from swell.model.quantity import ARRAY_TASKS_MAX, IndexSet
from swell.model.task_environment import Ranks
from swell.model.told import check
from swell.model.training import Report


@dataclass(frozen=True, slots=True)
class Lane:
    """A slot as the worker needs it: which devices a task in it sees."""

    number: int
    devices: tuple[DeviceId, ...]
    role: int = 0
    memory_mib: int = 0  #: at most; 0: the job named none
    cpus_milli: int = 0  #: its share when all want more than there is; 0: as one CPU
    cpu_limit_milli: int = 0  #: also where more are free; 0: as many as are free


@dataclass(frozen=True, slots=True)
class LaunchRole:
    """What the tasks of one role run."""

    command: tuple[str, ...]
    env: Variables = ()
    numbered: tuple[Numbered, ...] = ()
    first_rank: int = 0  #: from which its tasks are counted
    cpu_limit_milli: int = 0  #: of each task; 0: none


DIGEST = re.compile(r"[0-9a-f]{64}")  # as hashlib writes SHA-256
ADDRESS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,45}")  # a name, or a number
PORT_MAX = 65535
NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")  # of a worker: a host name, or like one
TAG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
TAG_LABEL = "swell.dev/tag"  # of a node whose worker has a tag
LINE_MAX = 1000  # characters of what a worker says in one line: a GPU's model, its backend's id and log
NODE_GPUS_MAX, NODE_LIMITS_MAX = 4096, 16  # of one machine; each GPU is a part of every plan
NODE_HEADER, KEY_HEADER = "Swell-Worker", "Swell-Worker-Key"  # who a worker elsewhere is, and how it proves that


KEEP = "keep"  # instead of indices: those that the worker holds already; a server that has just started knows no more


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks of a gang on several machines meet."""

    port: int  #: free on the machine of rank 0 when its worker chose it
    addresses: tuple[str, ...]  #: of the machines, in the order of the launch's nodes
    node_of_rank: tuple[int, ...]  #: for each rank the place of its machine in `addresses`

    def address_of(self, rank: int) -> str:
        return self.addresses[self.node_of_rank[rank]]

    def check(self) -> None:
        """Raise `ValueError` where it is none: a server sends it, and tasks are told it."""
        _parse_port(self.port)
        for address in self.addresses:
            parse_address(address)


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt's part on one node: lanes, and the indices to work through in them.

    A gang's rank r runs in lane r and nowhere else, all begin together. An array's indices run in whichever
    lane is free, so the worker needs to ask nobody for the next one.
    """

    attempt: AttemptId
    node: NodeId
    generation: int  #: of the plan that decided it; never goes back
    revision: int  #: of the lanes; the worker says which it has applied
    name: str
    roles: tuple[LaunchRole, ...]
    workdir: str
    umask: int
    environment: str  #: hash of the caller's environment, fetched once
    env: Variables  #: added to it
    own: Variables  #: what only this attempt is told: where to report, what to go on from
    lanes: tuple[Lane, ...]
    indices: str  #: as in IndexSet; a gang's ranks on this node
    is_array: bool
    world_size: int  #: tasks of the whole job
    nodes: tuple[NodeId, ...]  #: of the attempt, in rank order, each once
    time_limit_s: float | None  #: None: endless
    grace_s: float
    tensorboard: str | None = None  #: folder; None: no TensorBoard beside it
    user: str | None = None  #: as whom its tasks run; None: as the worker itself
    uid: int | None = None  #: of that user when it was submitted; None: as above
    idle: IdlePolicy | None = None  #: None: its GPUs may idle
    container: Container | None = None  #: None: plain processes
    is_stopping: bool = False
    ranks: Ranks = Ranks.TASKS
    is_dealt: bool = False  #: an array's indices are dealt to several workers: `indices` are those of this one
    may_get_more: bool = False  #: of those: it has not ended when it has done what it holds
    rendezvous: Rendezvous | None = None  #: None: all ranks are on this machine, or the workers have not agreed yet
    files: JobFiles | None = None  #: None: its tasks run in a folder that is there already
    handed: tuple[str, ...] = ()  #: names of the caller's variables that its containers are given

    @property
    def waits_for_rendezvous(self) -> bool:
        """Are its ranks on several machines that have not agreed yet where to meet? Then no rank begins."""
        return not self.is_array and len(self.nodes) > 1 and self.rendezvous is None

    def stopped(self, *, grace_s: float, generation: int) -> Launch:
        return replace(self, is_stopping=True, grace_s=grace_s, generation=generation)

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = codec.to_document(self)
        if self.ranks is Ranks.TASKS:  # a worker of before knows no others
            del document["ranks"]
        if self.rendezvous is None:  # nor this
            del document["rendezvous"]
        if self.files is None:  # nor this
            del document["files"]
        if not self.handed:  # nor these
            del document["handed"]
        if not self.is_dealt:
            del document["is_dealt"], document["may_get_more"]
        leave_out_newer(*document["roles"], *document["lanes"], document["container"])  # nor these
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Launch:
        """A server of before does not say what ranks are."""
        ranks = Ranks.ALONE if document["is_array"] else Ranks.TASKS
        launch = codec.from_document(cls, {"ranks": ranks, **document})
        _parse_digest(launch.environment)
        if launch.rendezvous is not None:
            launch.rendezvous.check()
        return launch


def _parse_digest(text: str) -> str:
    """It becomes the name of a file, which must be nowhere else."""
    if not DIGEST.fullmatch(text):
        raise ValueError(f"environment {text[:100]!r} is no SHA-256 in hexadecimal digits")
    return text


def parse_address(text: str) -> str:
    """It goes into the environment of tasks on other machines."""
    if text and not ADDRESS.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no address of a machine")
    return text


def _parse_port(port: int) -> int:
    """0: the worker has not chosen any."""
    if not isinstance(port, int) or not 0 <= port <= PORT_MAX:
        raise ValueError(f"{port!r} is no port")
    return port


@dataclass(frozen=True, slots=True)
class TaskSeen:
    """What is known of one task. Repeats are harmless; a later one never takes back an end."""

    attempt: AttemptId
    index: int
    node: NodeId
    lane: int
    started_at: float
    ended_at: float | None = None  #: None: alive
    exit_code: int | None = None  #: None: alive, or nobody recorded it
    cause: str = ""  #: why it ended, where the code does not tell: see the CAUSE_ constants
    problem: str = ""  #: in words, of whoever refused or ended it; of a deleted object its kind and name
    used_mib: int | None = None  #: memory that it had when it was ended for that; None: it was not, or nobody knows

    @property
    def has_run(self) -> bool:
        """Was there ever a process? One that never was has ended when it began."""
        return self.ended_at != self.started_at or self.cause not in MAY_NOT_HAVE_RUN

    def bounded(self) -> TaskSeen:
        """With no more words than anybody reads: some are a runtime's, or a cluster's."""
        if len(self.problem) <= PROBLEM_MAX:
            return self
        return replace(self, problem=f"{self.problem[:PROBLEM_MAX]} …")


PROBLEM_MAX = 4000  # characters


CAUSE_TIME_LIMIT = "time-limit"
CAUSE_STOPPED = "stopped"  # we were asked to stop it
CAUSE_REBOOT = "machine-restarted"
CAUSE_START = "start-failed"
CAUSE_KEEPER = "keeper-lost"
CAUSE_MEMORY = "out-of-memory"  # it was killed for using more memory than its limit
CAUSE_IMAGE = "image"  # its image cannot be pulled or started
CAUSE_EVICTED = "evicted"  # its node needed the room, or is being emptied
CAUSE_NODE_LOST = "node-lost"  # its node is gone, or not ready
CAUSE_POD_LOST = "pod-lost"  # its pod was deleted behind our back
CAUSE_NOT_PLACED = "not-placed"  # it could not be bound, or its node refused it before it ran
CAUSE_DELETED = "deleted"  # somebody else deleted its object
CAUSE_LEFT_OUT = "left-out"  # its pod was deleted, and the others of its gang go on without it
FAILS_AGAIN = frozenset({CAUSE_START, CAUSE_IMAGE, CAUSE_TIME_LIMIT})  # tried again, it would end the same way
CAUSES = frozenset(value for name, value in globals().items() if name.startswith("CAUSE_"))
MAY_NOT_HAVE_RUN = frozenset(
    {
        CAUSE_STOPPED,
        CAUSE_IMAGE,
        CAUSE_EVICTED,
        CAUSE_NODE_LOST,
        CAUSE_POD_LOST,
        CAUSE_NOT_PLACED,
        CAUSE_DELETED,
        CAUSE_LEFT_OUT,
    }
)


@dataclass(frozen=True, slots=True)
class GpuSeen:
    """What an attempt does with the GPUs of one node, where the driver tells."""

    memory_mib: int = 0  #: of all its processes on all its GPUs, now
    peak_mib: int = 0  #: the most that one of its tasks had on one GPU
    quiet_s: float = 0.0  #: for so long no sample on any of its GPUs has reached its threshold; 0 without a policy


@dataclass(frozen=True, slots=True)
class RunSeen:
    """How far a worker is with one launch."""

    attempt: AttemptId
    node: NodeId
    revision: int  #: of the lanes it has applied
    in_use: tuple[int, ...]  #: lanes with a task alive
    left: int  #: indices not begun
    is_finished: bool  #: nothing alive, nothing more will begin, every end has been reported
    tensorboard: str = ""  #: where it can be looked at; empty: nowhere
    gpu: GpuSeen | None = None  #: None: not measured
    trouble: str = ""  #: what keeps it from starting or going on, in words; empty: nothing, or nobody knows
    suspended: str = ""  #: the kind and name of its object that somebody else has suspended; empty: nobody has
    held: str = ""  #: of an array that is dealt: the indices that this worker holds, begun or not
    port: int = 0  #: free on this machine, for the ranks to meet if rank 0 is here; 0: nobody has looked


@dataclass(frozen=True, slots=True)
class WorkerTerms:
    """On what terms a worker elsewhere offers its machine."""

    lease_s: float  #: it stops its tasks when it has not reached the server for so long
    tag: str = ""
    is_exclusive: bool = False  #: only jobs that ask for the tag may come
    is_preemptible: bool = False  #: the machine may vanish
    is_leaving: bool = False  #: nothing new may come
    group: str = ""  #: only jobs of its users may come; empty: of everybody
    backend: BackendJob | None = None  #: None: somebody started it by hand


def with_terms(node: Node, terms: WorkerTerms) -> Node:
    """The machine, with what the terms make of it."""
    node = replace(node, is_preemptible=terms.is_preemptible, backend=terms.backend)
    if not (terms.tag or terms.group or terms.is_leaving):
        return node
    labels = ((TAG_LABEL, terms.tag),) if terms.tag else ()
    return replace(node, labels=labels, taints=_taints(terms), is_cordoned=terms.is_leaving)


def _taints(terms: WorkerTerms) -> tuple[Taint, ...]:
    named = [(TAG_LABEL, terms.tag if terms.is_exclusive else ""), (GROUP_TAINT, terms.group)]
    return tuple(Taint(key, value, Effect.NO_SCHEDULE) for key, value in named if value)


LEASE_S_RANGE = (10.0, 86400.0)
MARGIN_S = 60.0  # between a worker's lease and the moment its tasks may begin elsewhere


def parse_terms(document: dict[str, Any] | None) -> WorkerTerms | None:
    """None: it is the worker of the server's own machine, which makes none."""
    if document is None:
        return None
    backend = document.get("backend")
    terms = WorkerTerms(**{**document, "backend": None if backend is None else _parse_backend(backend)})
    low, high = LEASE_S_RANGE
    if not isinstance(terms.lease_s, int | float) or not low <= terms.lease_s <= high:
        raise ValueError(f"a lease of {terms.lease_s!r} s; it must be between {low:g} and {high:g}")
    for what, text in (("tag", terms.tag), ("group", terms.group)):
        if not isinstance(text, str) or (text and not TAG.fullmatch(text)):
            raise ValueError(f"the {what} {str(text)[:100]!r}; it must be letters, digits and '-'")
    if not all(isinstance(flag, bool) for flag in (terms.is_exclusive, terms.is_preemptible, terms.is_leaving)):
        raise ValueError("terms that are neither true nor false")
    return terms


def _parse_backend(document: dict[str, Any]) -> BackendJob:
    found = BackendJob(**document)
    for text in (found.backend, found.id, found.log):
        if not isinstance(text, str):
            raise ValueError(f"{str(text)[:100]!r} of the worker's backend; it must be text")
        _parse_line(text)
    return found


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything an engine knows at one moment. Tasks: all that changed since the last look, or all of them."""

    nodes: tuple[Node, ...] = ()
    tasks: tuple[TaskSeen, ...] = ()
    runs: tuple[RunSeen, ...] = ()
    silent_s: dict[NodeId, float] = field(default_factory=dict)  #: nodes out of reach, and for how long
    reports: tuple[Report, ...] = ()  #: what attempts that are over have left, and nobody heard while they ran
    emptied: Mapping[AttemptId, tuple[int, ...]] = field(default_factory=dict)  #: of a gang: ranks that need no room


def task_document(task: TaskSeen) -> list[Any]:
    """Compact: an array reports thousands."""
    return [
        str(task.attempt),
        task.index,
        task.lane,
        task.started_at,
        task.ended_at,
        task.exit_code,
        task.cause,
        task.problem,
        task.used_mib,
    ]


def parse_task(document: list[Any], node: NodeId) -> TaskSeen:
    attempt, *fields = document  # a worker of before says nothing of memory
    index, lane, *rest = fields
    task = TaskSeen(AttemptId.parse(attempt), index, node, lane, *rest)
    check(task)
    return task


NOT_TOLD_OF_RUNS = ("node", "suspended")  # who tells it is known, and what only a cluster's objects can be
TOLD_OF_RUNS = tuple(one.name for one in fields(RunSeen) if one.name not in NOT_TOLD_OF_RUNS)
#: only a cluster's nodes have these, or they follow from a worker's terms
NOT_TOLD_OF_NODES = ("labels", "taints", "is_cordoned", "tasks_max", "is_preemptible", "backend")
#: what is taken from a worker; whether it can be reached is not for it to say
TOLD_OF_NODES = tuple(one.name for one in fields(Node) if one.name not in (*NOT_TOLD_OF_NODES, "is_reachable"))


def run_document(run: RunSeen) -> dict[str, Any]:
    """What a worker says of one launch; which worker it is, is known."""
    return {name: value for name, value in codec.to_document(run).items() if name in TOLD_OF_RUNS}


def parse_run(document: dict[str, Any], node: NodeId) -> RunSeen:
    """A worker of before does not say everything, and one of later may say more."""
    known = {name: document[name] for name in TOLD_OF_RUNS if name in document}
    run = codec.from_document(RunSeen, {**known, "node": node})
    check(run)
    _parse_port(run.port)
    if len(IndexSet.parse(run.held)) > ARRAY_TASKS_MAX:
        raise ValueError(f"more than {ARRAY_TASKS_MAX} indices are held")
    _parse_line(run.tensorboard)
    return run if len(run.trouble) <= PROBLEM_MAX else replace(run, trouble=f"{run.trouble[:PROBLEM_MAX]} …")


def node_document(node: Node) -> dict[str, Any]:
    """What a worker says of its machine, without what only a cluster's nodes have: its engine reads that there."""
    return {name: value for name, value in codec.to_document(node).items() if name not in NOT_TOLD_OF_NODES}


def parse_node(document: dict[str, Any]) -> Node:
    """A worker of before does not say everything, and one of later may say more."""
    node = codec.from_document(Node, {name: document[name] for name in TOLD_OF_NODES if name in document})
    check(node)
    parse_address(node.address)
    if not NODE_NAME.fullmatch(node.id):
        raise ValueError(f"{node.id[:100]!r} is no name of a machine; it must be letters, digits, '.', '_' and '-'")
    if len(set(node.sizes_mib)) < len(node.devices):
        raise ValueError("two GPUs have the same id")
    devices = (*node.devices, *node.lost)
    if len(devices) > NODE_GPUS_MAX or len(node.unenforced) > NODE_LIMITS_MAX:
        raise ValueError(f"{len(devices)} GPUs and {len(node.unenforced)} limits that are not enforced")
    texts = [text for device in devices for text in (device.id, device.model)]
    for text in (*texts, *(text for pair in node.unenforced for text in pair), node.container_runtime, node.machine):
        if len(text) > LINE_MAX:
            raise ValueError(f"a text of {len(text)} characters; at most {LINE_MAX} are taken")
    return replace(node, container_runtime=_parse_runtime(node.container_runtime))


RUNTIMES = ("podman", "docker")


def runtime_name(program: str) -> str | None:
    """Which runtime a program is, by its name or absolute path; None: it is neither podman nor docker."""
    folder, slash, name = program.rpartition("/")
    return name if name in RUNTIMES and (not slash or folder.startswith("/") or not folder) else None


def words_for_users(command: Sequence[str]) -> list[str]:
    """What podman is called with for users without a session: they have no systemd to ask for control groups."""
    if any(word.startswith("--cgroup-manager") for word in command):
        return [*command]
    return [*command, "--cgroup-manager", "cgroupfs"]


def _parse_runtime(command: str) -> str:
    """Only the name is taken: whatever else a worker says here must never be part of a command that a user runs."""
    if not command:
        return ""
    name = runtime_name(command if command in RUNTIMES else next(iter(shlex.split(command)), ""))
    if name is None:
        raise ValueError(f"the container runtime {command[:100]!r} is neither podman nor docker")
    return name


def _parse_line(text: str) -> str:
    """It is shown in tables and kept in events."""
    if len(text) > LINE_MAX or not text.isprintable():
        raise ValueError(f"{text[:100]!r}; it must be one line of text")
    return text


#: What the client of an image's runtime itself goes by: a job's own values of these stand in its command line.
CLIENTS_OWN = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"})
CLIENTS_PREFIXES = ("XDG_", "LD_", "CONTAINER", "DOCKER_", "DBUS_")


def is_clients_own(name: str) -> bool:
    return name in CLIENTS_OWN or name.startswith(CLIENTS_PREFIXES)


SOCKET_NAME = "jobs.sock"  # what jobs of a private server report through, and those with a network of their own
INSIDE = "/swell"  # the folder in a container that is ours


def container_name(store: str, attempt: AttemptId, index: int) -> str:
    """The same for the same task whoever asks: by it the container is stopped, entered and found again."""
    return f"swell-{store[:8]}-{attempt}-{index}"
