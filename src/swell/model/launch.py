"""What is a machine asked to run, and what has been seen of it?

These values cross the wire between server and worker as plain documents.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from swell.model.cluster import Device, DeviceId, Node, NodeId
from swell.model.job import AttemptId, Container, IdlePolicy, parse_container
from swell.model.numbered import Numbered
from swell.model.task_environment import Ranks
from swell.model.training import Report


@dataclass(frozen=True, slots=True)
class Lane:
    """A slot as the worker needs it: which devices a task in it sees."""

    number: int
    devices: tuple[DeviceId, ...]
    role: int = 0
    memory_mib: int = 0  #: at most; 0: the job named none
    cpus_milli: int = 0  #: its share when all want more than there is; 0: as one CPU


@dataclass(frozen=True, slots=True)
class LaunchRole:
    """What the tasks of one role run."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    numbered: tuple[Numbered, ...] = ()
    first_rank: int = 0  #: from which its tasks are counted


#: fields of a launch that workers are not told
OF_OBJECTS = frozenset({"width", "is_elastic", "rewrites_width", "manifest", "has_begun", "shares_mib", "draining"})


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
    env: tuple[tuple[str, str], ...]  #: added to it
    own: tuple[tuple[str, str], ...]  #: what only this attempt is told: where to report, what to go on from
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
    # For objects of a cluster; workers are not told. Not compared: the attempt has only one width and manifest.
    width: int = field(default=0, compare=False)  #: of the attempt; 0: not told
    is_elastic: bool = field(default=False, compare=False)  #: may it be resized, so that it must be able to report?
    rewrites_width: bool = field(default=False, compare=False)  #: `--num_processes=` follows the GPUs of each task
    manifest: str = field(default="", compare=False)  #: hash of what its object is made from; empty: it is none
    has_begun: bool = field(default=False, compare=False)  #: has a task of it been seen running, so its object existed?
    shares_mib: tuple[int, ...] = field(default=(), compare=False)  #: of each role: of one GPU; 0: whole ones, or none
    draining: tuple[Lane, ...] = field(default=(), compare=False)  #: lanes in which what runs may go on to its end

    def stopped(self, *, grace_s: float, generation: int) -> Launch:
        return replace(self, is_stopping=True, grace_s=grace_s, generation=generation)

    def to_document(self) -> dict[str, Any]:
        """What a worker is told: nothing of what only objects of a cluster need, which one of before could not read."""
        roles = [{**asdict(role), "env": dict(role.env)} for role in self.roles]
        own = {"attempt": str(self.attempt), "env": dict(self.env), "own": dict(self.own), "roles": roles}
        fields = {name: value for name, value in asdict(self).items() if name not in OF_OBJECTS}
        if self.ranks is Ranks.TASKS:  # a worker of before knows no others
            del fields["ranks"]
        return {**fields, **own}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Launch:
        return cls(
            **{
                **document,
                "attempt": AttemptId.parse(document["attempt"]),
                "roles": tuple(_parse_role(role) for role in document["roles"]),
                "env": tuple(sorted(document["env"].items())),
                "own": tuple(sorted(document["own"].items())),
                "lanes": tuple(_parse_lane(lane) for lane in document["lanes"]),
                "nodes": tuple(document["nodes"]),
                "ranks": _parse_ranks(document),
                "idle": None if document.get("idle") is None else IdlePolicy(**document["idle"]),
                "container": parse_container(document.get("container")),
            }
        )


def _parse_ranks(document: dict[str, Any]) -> Ranks:
    """A server of before does not say."""
    return Ranks(document.get("ranks", Ranks.ALONE if document["is_array"] else Ranks.TASKS))


def _parse_lane(document: dict[str, Any]) -> Lane:
    limits = document.get("memory_mib", 0), document.get("cpus_milli", 0)  # a server of before names none
    return Lane(document["number"], tuple(document["devices"]), document["role"], *limits)


def _parse_role(document: dict[str, Any]) -> LaunchRole:
    numbered = tuple(Numbered(**one) for one in document.get("numbered", ()))  # a server of before sends none
    env = tuple(sorted(document["env"].items()))
    return LaunchRole(tuple(document["command"]), env, numbered, document.get("first_rank", 0))


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
MAY_NOT_HAVE_RUN = frozenset(
    {CAUSE_STOPPED, CAUSE_IMAGE, CAUSE_EVICTED, CAUSE_NODE_LOST, CAUSE_POD_LOST, CAUSE_NOT_PLACED, CAUSE_DELETED}
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


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything an engine knows at one moment. Tasks: all that changed since the last look, or all of them."""

    nodes: tuple[Node, ...] = ()
    tasks: tuple[TaskSeen, ...] = ()
    runs: tuple[RunSeen, ...] = ()
    silent_s: dict[NodeId, float] = field(default_factory=dict)  #: nodes out of reach, and for how long
    reports: tuple[Report, ...] = ()  #: what attempts that are over have left, and nobody heard while they ran


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
    return TaskSeen(AttemptId.parse(attempt), index, node, lane, *rest)


def run_document(run: RunSeen) -> dict[str, Any]:
    return {
        "attempt": str(run.attempt),
        "revision": run.revision,
        "in_use": list(run.in_use),
        "left": run.left,
        "is_finished": run.is_finished,
        "tensorboard": run.tensorboard,
        "gpu": None if run.gpu is None else asdict(run.gpu),
    }


def parse_run(document: dict[str, Any], node: NodeId) -> RunSeen:
    return RunSeen(
        AttemptId.parse(document["attempt"]),
        node,
        document["revision"],
        tuple(document["in_use"]),
        document["left"],
        document["is_finished"],
        document["tensorboard"],
        None if document.get("gpu") is None else GpuSeen(**document["gpu"]),
    )


OF_CLUSTERS = ("labels", "taints", "is_cordoned", "tasks_max")


def node_document(node: Node) -> dict[str, Any]:
    """What a worker says of its machine, without what only a cluster's nodes have: its engine reads that there."""
    return {name: value for name, value in asdict(node).items() if name not in OF_CLUSTERS}


def parse_node(document: dict[str, Any]) -> Node:
    devices, lost = (tuple(Device(**one) for one in document.get(field, ())) for field in ("devices", "lost"))
    runtime = document.get("container_runtime", "")  # a worker of before says neither this nor what is lost
    unenforced = tuple((what, why) for what, why in document.get("unenforced", ()))  # nor this
    return Node(
        document["id"],
        document["cpus_milli"],
        document["memory_mib"],
        devices,
        container_runtime=runtime,
        lost=lost,
        unenforced=unenforced,
    )
