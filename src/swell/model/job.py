"""What does the user want done, and how far is it?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from swell.model import codec
from swell.model.codec import INLINE, Variables
from swell.model.job_files import JobFiles
from swell.model.launcher import Launcher
from swell.model.placement import NO_RULES, PlacementRules
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
    EITHER = "either"  # whichever of both costs less; it resumes by itself
    NEVER = "never"

    def of(self, *, has_checkpoint: bool) -> ResizeMode:
        """What it is for a job that has reported a checkpoint, or has not."""
        if self is not ResizeMode.EITHER:
            return self
        return ResizeMode.AT_CHECKPOINT if has_checkpoint else ResizeMode.IMMEDIATE


@dataclass(frozen=True, slots=True)
class After:
    """Wait for another job."""

    job: JobId  #: until it is stored also -1, -2 …: the first, second … of the same submission, which has no id yet
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


class ExitAction(StrEnum):
    """What becomes of a job when one of its tasks fails."""

    COUNT = "count"  # it is tried again while it has retries left: as where no rule fits
    FAIL = "fail"  # it is not tried again, however many retries are left
    IGNORE = "ignore"  # it is tried again, and that does not count as a retry


@dataclass(frozen=True, slots=True)
class ExitRule:
    """Which exit codes are treated otherwise. Of several rules the first that fits counts."""

    action: ExitAction
    codes: tuple[int, ...]  #: empty: all but 0
    is_other: bool = False  #: all but these codes, and 0
    ranks: tuple[int, int] | None = None  #: of the tasks from this rank up to that one; None: of all

    def fits(self, code: int, rank: int) -> bool:
        if code == 0 or (self.ranks is not None and not self.ranks[0] <= rank <= self.ranks[1]):
            return False
        return not self.codes or (code in self.codes) is not self.is_other


def exit_action(rules: tuple[ExitRule, ...], code: int | None, rank: int) -> ExitAction | None:
    """None: no rule fits, or there is no exit code; then it counts as any failure."""
    if code is None:
        return None
    return next((rule.action for rule in rules if rule.fits(code, rank)), None)


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
class Volume:
    """A volume of a cluster, seen in a container: a claim, or a folder that an NFS server exports.

    On a machine of our own it is one of its folders.
    """

    target: str
    claim: str = ""
    server: str = ""
    export: str = ""
    is_read_only: bool = False
    folder: str = ""  #: of the machine; empty: nobody named one, and it runs on Kubernetes only


@dataclass(frozen=True, slots=True)
class Secret:
    """A variable whose value is not in the job."""

    name: str  #: of the variable: in the caller's environment, where the job runs on a machine
    secret: str = ""  #: the Secret of a cluster that has its value there; empty: nobody named one
    key: str = ""  #: in that Secret


@dataclass(frozen=True, slots=True)
class Container:
    """Run the command in this image."""

    image: str
    mounts: tuple[Mount, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()  #: of the machine, of the container
    shm_mib: int = 0  #: of its own /dev/shm; 0: that of the machine, on Kubernetes that of its runtime
    volumes: tuple[Volume, ...] = ()


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
class Numbered:
    """A variable that counts the tasks of its role, in their order.

    `Numbered("JOB_INDEX", each=4)` is 0 for the first four tasks, 1 for the next four;
    `Numbered("JOB_COMPLETION_INDEX", wrap=4)` is 0, 1, 2, 3 and then 0 again.
    """

    name: str
    first: int = 0
    each: int = 1  #: so many tasks in a row have the same number
    wrap: int | None = None  #: after so many numbers it begins again; None: never

    def of(self, task: int) -> int:
        number = task // self.each
        return self.first + (number if self.wrap is None else number % self.wrap)


#: Members of jobs, roles, rules about nodes, lanes and containers that a server or worker of before refuses.
NEWER = ("cpu_limit_milli", "shm_mib", "volumes", "groups", "domain", "has_own_curve", "saves_every_s")


def leave_out_newer(*documents: dict[str, Any] | None) -> None:
    """Where they have their defaults."""
    for document in documents:
        for name in NEWER if document else ():
            if document is not None and not document.get(name, True):
                del document[name]


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of task inside a job."""

    name: str
    command: tuple[str, ...]
    resources: Annotated[Resources, INLINE]  #: of one task; in an elastic job the least it takes
    count: int  #: how many tasks; in an elastic job the least
    env: Variables = ()  #: this role's own variables, beside the job's
    numbered: tuple[Numbered, ...] = ()  #: those that differ from task to task
    rules: PlacementRules | None = None  #: which nodes of a cluster its tasks may go to; None: any
    cpu_limit_milli: int = 0  #: of one task, also where more CPUs are free; 0: as many as are free


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
    env: Variables  #: added to the caller's environment
    umask: int
    epochs: int | None = None  #: None: only the job itself knows
    estimate_s: float | None = None  #: the user's guess of its run time; None: no guess
    saves_every_s: float | None = None  #: how often it is saved inside an epoch, too; None: as the job does itself
    resize: ResizeMode = ResizeMode.AT_CHECKPOINT
    retries: int = 0  #: how often it is started again after a failure of its own; of an array: each index
    retries_together: int | None = None  #: of an array: all its indices together; None: as often as each may
    exit_rules: tuple[ExitRule, ...] = ()  #: which failures are no reason to try again, or do not count
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
    preempts: bool = False  #: its PriorityClass lets it take the room of jobs of lower priority that cannot save
    launcher: Launcher | None = None  #: starts its command once for each GPU of a task; None: it is started once
    files: JobFiles | None = None  #: None: its tasks run in a folder that is there already
    secrets: tuple[Secret, ...] = ()  #: variables that it cannot do without, beside `env`
    has_own_curve: bool = False  #: it learns its speed at each width by itself, and no other job learns from it

    @property
    def tasks_total(self) -> int:
        return len(self.array.indices) if self.array else sum(role.count for role in self.roles)

    def in_groups(self, groups: tuple[str, ...]) -> JobSpec:
        """As a job of a user who is in these groups."""
        roles = [replace(role, rules=replace(role.rules or NO_RULES, groups=groups)) for role in self.roles]
        return replace(self, roles=tuple(roles))

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = codec.to_document(self)
        leave_out_newer(
            document, *document["roles"], *(role["rules"] for role in document["roles"]), document["container"]
        )
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> JobSpec:
        """Fields that an older version did not write have their defaults."""
        return codec.from_document(cls, document)
