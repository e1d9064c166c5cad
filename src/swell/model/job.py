"""What does the user want done, and how far is it?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from swell.model.launcher import Launcher
from swell.model.numbered import Numbered
from swell.model.placement import Rules
from swell.model.quantity import IndexSet
from swell.model.resources import Resources

JobId = int
EXIT_YIELDED = 75  # the in-job library's way to say: checkpoint made, start me again (EX_TEMPFAIL)
MAILTO = "mailto:"
GRACE_S_DEFAULT = 30.0  # between SIGTERM and SIGKILL, as Kubernetes and Slurm have it


def job_uuid(store: str, job: JobId) -> str:
    """What a job is called where many servers' jobs are."""
    return f"{store[:8]}-{job}"


class JobState(StrEnum):
    QUEUED = "queued"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        return self in ENDED


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class Dimension(StrEnum):
    """In which unit a job's width is counted."""

    GPUS = "gpus"  # GPUs of its one task
    TASKS = "tasks"  # number of tasks


class ResizeMode(StrEnum):
    """How a running job may be given another width, or be preempted."""

    AT_CHECKPOINT = "at-checkpoint"  # when it has made its work durable; only where it reports checkpoints
    IMMEDIATE = "immediate"  # at any moment: it resumes by itself, and its restart is cheap
    EITHER = "either"  # at its checkpoints once it has reported one, until then at any moment: it resumes by itself
    NEVER = "never"

    def of(self, *, has_checkpoint: bool) -> ResizeMode:
        """What it is for a job that has reported a checkpoint, or has not."""
        if self is not ResizeMode.EITHER:
            return self
        return ResizeMode.AT_CHECKPOINT if has_checkpoint else ResizeMode.IMMEDIATE


@dataclass(frozen=True, slots=True)
class After:
    """Wait for another job."""

    job: JobId
    on_any_end: bool = False  #: False: only its success counts


@dataclass(frozen=True, slots=True)
class Notify:
    """Who is told when the job has ended."""

    to: tuple[str, ...]  #: a command's words, or one http(s) address, or mailto: and one recipient
    only_on_error: bool = False

    @property
    def is_address(self) -> bool:
        return len(self.to) == 1 and self.to[0].startswith(("http://", "https://"))

    @property
    def is_mail(self) -> bool:
        return len(self.to) == 1 and self.to[0].startswith(MAILTO)

    @property
    def recipient(self) -> str:
        """Of an e-mail."""
        return self.to[0].removeprefix(MAILTO)


class Overrun(StrEnum):
    """What happens to a job that uses more GPU memory than it reserved, where that is measured."""

    WARN = "warn"  # it is said, and its reservation follows what it uses
    YIELD = "yield"  # it gives its room back as for a resize, and comes back with what it needs
    STOP = "stop"  # it fails


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """When a job's GPUs count as idle: no sample on any of them reaches the threshold for so long."""

    min_gpu_utilization: int  #: percent
    window_s: float


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the machine, seen in a container."""

    source: str
    target: str
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """Run the command in this image."""

    image: str
    mounts: tuple[Mount, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()  #: of the machine, of the container


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """One life of a job; written '12.1' everywhere people see it."""

    job: JobId
    number: int

    def __str__(self) -> str:
        return f"{self.job}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        job, _, number = text.partition(".")
        return cls(int(job), int(number))


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of task inside a job."""

    name: str
    command: tuple[str, ...]
    resources: Resources  #: of one task; in an elastic job the least it takes
    count: int  #: how many tasks; in an elastic job the least
    env: tuple[tuple[str, str], ...] = ()  #: this role's own variables, beside the job's
    numbered: tuple[Numbered, ...] = ()  #: those that differ from task to task
    rules: Rules | None = None  #: which nodes of a cluster its tasks may go to; None: any


@dataclass(frozen=True, slots=True)
class Array:
    """Independent tasks, one per index, at most so many at once."""

    indices: IndexSet
    at_once: int


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for, after defaults. Never changes after acceptance."""

    name: str
    roles: tuple[Role, ...]
    dimension: Dimension
    width_min: int
    width_max: int
    array: Array | None  #: None: a gang, all tasks start together
    priority: int
    time_limit_s: float | None  #: None: endless
    grace_s: float
    workdir: str  #: empty: the one of its image (on Kubernetes)
    env: tuple[tuple[str, str], ...]  #: added to the caller's environment
    umask: int
    epochs: int | None = None  #: None: only the job itself knows
    estimate_s: float | None = None  #: the user's guess of its run time; None: no guess
    resize: ResizeMode = ResizeMode.AT_CHECKPOINT
    retries: int = 0  #: how often it is started again after a failure of its own
    after: tuple[After, ...] = ()
    notify: Notify | None = None  #: None: nobody is told
    tensorboard: str | None = None  #: folder; None: no TensorBoard beside it
    checkpoints: str | None = None  #: folder; None: one in the state folder
    rewrites_width: bool = False  #: NGPU and --num_processes= follow the width (manifests of genai's manager)
    container: Container | None = None  #: None: plain processes
    on_overrun: Overrun = Overrun.WARN
    idle: IdlePolicy | None = None  #: None: its GPUs may idle
    is_held: bool = False  #: from the start, until somebody releases it
    pod_group: str | None = None  #: the name of a group of pods that start together; None: nobody named one
    notes: tuple[str, ...] = ()  #: what the manifest asks for without effect, in words
    kind: str = ""  #: of the object it was written as: Pod, PyTorchJob …; empty: in our own notation
    launcher: Launcher | None = None  #: starts its command once for each GPU of a task; None: it is started once

    @property
    def tasks_total(self) -> int:
        return len(self.array.indices) if self.array else sum(role.count for role in self.roles)

    def gpus_at(self, width: int) -> int:
        """Of all its tasks together."""
        first, *others = self.roles
        if self.dimension is Dimension.GPUS:
            return sum(role.count * width for role in self.roles if role.resources.gpus)
        return width * first.resources.gpus + sum(role.count * role.resources.gpus for role in others)

    def to_document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "roles": [_role_document(role) for role in self.roles],
            "dimension": str(self.dimension),
            "width_min": self.width_min,
            "width_max": self.width_max,
            "array": None
            if self.array is None
            else {"indices": str(self.array.indices), "at_once": self.array.at_once},
            "priority": self.priority,
            "time_limit_s": self.time_limit_s,
            "grace_s": self.grace_s,
            "workdir": self.workdir,
            "env": dict(self.env),
            "umask": self.umask,
            "epochs": self.epochs,
            "estimate_s": self.estimate_s,
            "resize": str(self.resize),
            "retries": self.retries,
            "after": [{"job": after.job, "on_any_end": after.on_any_end} for after in self.after],
            "notify": None
            if self.notify is None
            else {"to": list(self.notify.to), "only_on_error": self.notify.only_on_error},
            "tensorboard": self.tensorboard,
            "checkpoints": self.checkpoints,
            "rewrites_width": self.rewrites_width,
            "container": None if self.container is None else asdict(self.container),
            "on_overrun": str(self.on_overrun),
            "idle": None if self.idle is None else asdict(self.idle),
            "is_held": self.is_held,
            "pod_group": self.pod_group,
            "notes": list(self.notes),
            "kind": self.kind,
            "launcher": None if self.launcher is None else str(self.launcher),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> JobSpec:
        """Fields that an older Swell did not write have their defaults."""
        return cls(
            **{
                **document,
                "roles": tuple(_parse_role(role) for role in document["roles"]),
                "dimension": Dimension(document["dimension"]),
                "array": _parse_stored_array(document["array"]),
                "env": tuple(sorted(document["env"].items())),
                "resize": ResizeMode(document.get("resize", ResizeMode.AT_CHECKPOINT)),
                "after": tuple(After(**after) for after in document.get("after", ())),
                "notify": _parse_notify(document.get("notify")),
                "container": parse_container(document.get("container")),
                "on_overrun": Overrun(document.get("on_overrun", Overrun.WARN)),
                "idle": None if document.get("idle") is None else IdlePolicy(**document["idle"]),
                "notes": tuple(document.get("notes", ())),
                "launcher": None if document.get("launcher") is None else Launcher(document["launcher"]),
            }
        )


def _role_document(role: Role) -> dict[str, Any]:
    return {
        "name": role.name,
        "command": list(role.command),
        "cpus_milli": role.resources.cpus_milli,
        "memory_mib": role.resources.memory_mib,
        "gpus": role.resources.gpus,
        "gpu_memory_mib": role.resources.gpu_memory_mib,
        "count": role.count,
        "env": dict(role.env),
        "numbered": [one.to_document() for one in role.numbered],
        "rules": None if role.rules is None else role.rules.to_document(),
    }


def _parse_role(document: dict[str, Any]) -> Role:
    memory = document.get("gpu_memory_mib", 0)
    resources = Resources(document["cpus_milli"], document["memory_mib"], document["gpus"], memory)
    env = tuple(sorted(document.get("env", {}).items()))
    numbered = tuple(Numbered(**one) for one in document.get("numbered", ()))
    rules = None if document.get("rules") is None else Rules.from_document(document["rules"])
    return Role(document["name"], tuple(document["command"]), resources, document["count"], env, numbered, rules)


def _parse_notify(document: dict[str, Any] | None) -> Notify | None:
    return None if document is None else Notify(tuple(document["to"]), document["only_on_error"])


def parse_container(document: dict[str, Any] | None) -> Container | None:
    if document is None:
        return None
    mounts = tuple(Mount(**mount) for mount in document["mounts"])
    return Container(document["image"], mounts, tuple((host, inside) for host, inside in document["ports"]))


def _parse_stored_array(document: dict[str, Any] | None) -> Array | None:
    return None if document is None else Array(IndexSet.parse(document["indices"]), document["at_once"])
