"""A value of every kind that is stored or sent, with something in every field; `documents/` has what became of them."""

from __future__ import annotations

from swell.model.attempt import Asked, Failure, Resume, Stopping
from swell.model.cluster import Device, Node
from swell.model.job import (
    After,
    Array,
    AttemptId,
    Container,
    Dimension,
    IdlePolicy,
    JobSpec,
    Mount,
    Notify,
    Numbered,
    Overrun,
    ResizeMode,
    Role,
)
from swell.model.launch import GpuSeen, Lane, Launch, LaunchRole, Rendezvous, RunSeen, TaskSeen
from swell.model.launcher import Launcher
from swell.model.placement import Company, Effect, Operator, PlacementRules, Requirement, Term, Toleration
from swell.model.plan import Slot
from swell.model.quantity import IndexSet
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.model.task_environment import Ranks
from swell.model.training import Checkpoint, Measure, TrainingRecord

RULES = PlacementRules(
    selector=(("disk", "ssd"), ("zone", "a")),
    terms=(
        Term((Requirement("gpu", Operator.IN, ("a100", "h100")),), (Requirement("metadata.name", Operator.EXISTS),)),
    ),
    tolerations=(Toleration("gpu", None, Effect.NO_SCHEDULE), Toleration()),
    company=Company.APART,
)
CONTAINER = Container("train:1", (Mount("/data", "/in", is_read_only=True), Mount("/out", "/out")), ((8080, 80),))
SPEC = JobSpec(
    name="whole",
    roles=(
        Role("master", ("python", "a.py"), Resources(1500, 2048, 1, 4096), 1, (("A", "1"), ("B", "é")), rules=RULES),
        Role(
            "worker", ("true",), Resources(500, 0, 0, 512), 3, numbered=(Numbered("JOB_INDEX", 1, 4, 2), Numbered("N"))
        ),
    ),
    dimension=Dimension.TASKS,
    width_min=1,
    width_max=4,
    array=None,
    priority=7,
    time_limit_s=3600.5,
    grace_s=45.0,
    workdir="/home/ann",
    env=(("C", ""), ("D", "x=y")),
    umask=0o027,
    epochs=20,
    estimate_s=7200.0,
    resize=ResizeMode.EITHER,
    retries=2,
    retries_together=5,
    after=(After(3), After(4, on_any_end=True)),
    notify=Notify(("mail", "-s", "done", "ann"), only_on_error=True),
    tensorboard="/logs",
    checkpoints="/kept",
    rewrites_width=True,
    container=CONTAINER,
    on_overrun=Overrun.STOP,
    idle=IdlePolicy(5, 600.0),
    is_held=True,
    pod_group="gang-a",
    notes=("the field x has no effect",),
    kind="PyTorchJob",
    launcher=Launcher.TORCHRUN,
)
PLAIN = JobSpec(
    name="array",
    roles=(Role("worker", ("./case.sh",), Resources(1000), 1),),
    dimension=Dimension.GPUS,
    width_min=1,
    width_max=8,
    array=Array(IndexSet.parse("0-99,200"), 8),
    priority=0,
    time_limit_s=None,
    grace_s=30.0,
    workdir="",
    env=(),
    umask=0o022,
)
LAUNCH = Launch(
    attempt=AttemptId(12, 3),
    node="a",
    generation=41,
    revision=2,
    name="whole",
    roles=(LaunchRole(("python", "a.py"), (("A", "1"),), (Numbered("JOB_INDEX", each=4),), 1), LaunchRole(("true",))),
    workdir="/home/ann",
    umask=0o022,
    environment="ab" * 32,
    env=(("C", "1"),),
    own=(("SWELL_TOKEN", "t"), ("SWELL_URL", "http://127.0.0.1:1")),
    lanes=(Lane(0, ("g0", "g1"), 1, 2048, 1500), Lane(1, ())),
    indices="0-1",
    is_array=False,
    world_size=4,
    nodes=("a", "b"),
    time_limit_s=60.0,
    grace_s=30.0,
    tensorboard="/logs",
    user="ann",
    uid=1000,
    idle=IdlePolicy(5, 600.0),
    container=CONTAINER,
    is_stopping=True,
    ranks=Ranks.ALONE,
    rendezvous=Rendezvous(29500, ("10.0.0.1", "b.local"), (0, 0, 1, 1)),
)
SHORT_LAUNCH = Launch(
    attempt=AttemptId(1, 1),
    node="a",
    generation=1,
    revision=1,
    name="short",
    roles=(LaunchRole(("true",)),),
    workdir="/",
    umask=0o022,
    environment="cd" * 32,
    env=(),
    own=(),
    lanes=(Lane(0, ()),),
    indices="0",
    is_array=False,
    world_size=1,
    nodes=("a",),
    time_limit_s=None,
    grace_s=30.0,
)
TRAINING = TrainingRecord(
    epochs_done=3.0,
    epochs_total=20.0,
    checkpoint=Checkpoint(2.0, "epoch-2", 1000.5, 3),
    every_s=12.5,
    restart_s=4.0,
    profile=(Measure(1, 1, 2, 9.0, True, 100, 0.25, 512.0), Measure(2, 1)),
    metrics={"loss": 0.5, "accuracy": 0.9},
    ends_at=2000.0,
    yielded=2,
    saves_later=3,
    only_saves=True,
)
ASKED = Asked(2, ResizeMode.AT_CHECKPOINT, "shrinks", 1000.0, 1030.0, 7, 4)
STOPPING = Stopping("too much", 30.0, "ann", Failure(Code.GPU_MEMORY_OVERRUN, {"job": 2, "used_mib": 600}))
RESUME = Resume(3.0, "epoch-3", 120.5)
SLOTS = (Slot(0, "a", Resources(1500, 2048, 2, 4096), ("g0", "g1"), is_draining=True), Slot(1, "b", Resources(1000)))
TASK = TaskSeen(AttemptId(12, 3), 5, "a", 1, 1000.0, 1010.5, 137, "out-of-memory", "killed", 2048)
RUN = RunSeen(
    AttemptId(12, 3), "a", 2, (0, 1), 5, False, "http://a:6006", GpuSeen(512, 600, 3.5), "no image", port=29500
)
NODE = Node(
    "a",
    8000,
    16384,
    (Device("g0", 81920, "H100", is_watched=True, outsiders_mib=5), Device("sim-0", 1024, "simulated", simulated=True)),
    container_runtime="podman",
    unenforced=(("memory", "no control groups"),),
    lost=(Device("g1", 81920, "H100"),),
    address="10.0.0.1",
)
