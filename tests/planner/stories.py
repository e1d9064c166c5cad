"""Random clusters and random jobs, small enough that everything meets everything."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from swell.model.cluster import Device, Node
from swell.model.job import Dimension, JobState, ResizeMode
from swell.model.placement import (
    CORDON,
    NODE_NAME,
    Company,
    Effect,
    Operator,
    PlacementRules,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from swell.model.plan import JobView, Shape, Standing
from swell.model.resources import Resources

from .simulation import Arrival, Intrusion, Outage, Story, Trainee

LASTS_S = (5.0, 50.0, 60.0, 300.0)
LIMITS_S = (60.0, 300.0, 600.0)
LAGS_S = (0.0, 1.0, 7.0, 45.0)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Node, ...]:
    return tuple(draw(_nodes(f"n{number}")) for number in range(draw(st.sampled_from((1, 1, 2, 2, 3, 4, 5)))))


@st.composite
def _nodes(draw: st.DrawFn, name: str) -> Node:
    devices = tuple(
        Device(f"{name}-{n}", 16384, "test", simulated=True) for n in range(draw(st.sampled_from((0, 1, 2, 4))))
    )
    cpus_milli = draw(st.sampled_from((2000, 4000, 4000, 7500)))
    return Node(name, cpus_milli, draw(st.sampled_from((8192, 16384))), devices)


TASKS = st.builds(
    Resources,
    cpus_milli=st.sampled_from((0, 100, 500, 1000, 1000, 2000, 2000, 3000)),
    memory_mib=st.sampled_from((0, 0, 0, 1024, 4096, 6144, 9000)),
    gpus=st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2, 4)),
)
LIMITS = st.none() | st.sampled_from(LIMITS_S)


@st.composite
def gangs(draw: st.DrawFn, *, limits: st.SearchStrategy[float | None] = LIMITS, roles_max: int = 1) -> Shape:
    resources, low = draw(TASKS), draw(st.sampled_from((1, 1, 1, 2, 3, 4)))
    others = draw(st.lists(st.tuples(TASKS, st.integers(1, 2)), max_size=roles_max - 1))
    high = low + draw(st.sampled_from((0, 0, 1, 3)))
    limit = draw(limits)
    if resources.gpus and draw(st.booleans()):
        task = Resources(resources.cpus_milli, resources.memory_mib, low)
        return Shape(((task, 1), *others), Dimension.GPUS, low, high, is_array=False, time_limit_s=limit)
    return Shape(((resources, low), *others), Dimension.TASKS, low, high, is_array=False, time_limit_s=limit)


@st.composite
def arrays(draw: st.DrawFn) -> Shape:
    at_once, limit = draw(st.integers(1, 6)), draw(LIMITS)
    return Shape(((draw(TASKS), 1),), Dimension.TASKS, 1, at_once, is_array=True, time_limit_s=limit)


@st.composite
def stories(draw: st.DrawFn, *, roles_max: int = 1) -> Story:
    """Arrays and gangs of every kind, some impossible, with lags and outages."""
    nodes = draw(clusters())
    shapes = draw(st.lists(gangs(roles_max=roles_max) | arrays(), min_size=3, max_size=6))
    arrivals = tuple(draw(_arrivals(number, shapes)) for number in range(1, 1 + draw(st.integers(8, 16))))
    outages = tuple(draw(st.lists(_outages(nodes), max_size=2)))
    lags_s = tuple(draw(st.lists(st.sampled_from(LAGS_S), min_size=1, max_size=5)))
    return Story(nodes, arrivals, outages, lags_s=lags_s)


@st.composite
def _arrivals(draw: st.DrawFn, number: int, shapes: list[Shape]) -> Arrival:
    shape = draw(st.sampled_from(shapes))
    tasks = draw(st.integers(1, 8)) if shape.is_array else 1
    job = JobView(number, shape, draw(st.integers(0, 2)), JobState.QUEUED, unfinished=tasks)
    limit = shape.time_limit_s
    if not shape.is_array and limit is None and draw(st.booleans()):
        job = replace(job, mode=draw(st.sampled_from((*ResizeMode, ResizeMode.AT_CHECKPOINT))))
        return Arrival(draw(st.sampled_from((0.0, 0.0, 10.0, 30.0, 55.0, 200.0))), job, (), draw(trainees(job.mode)))
    lasts = st.sampled_from([s for s in LASTS_S if limit is None or s <= limit])
    return Arrival(
        draw(st.sampled_from((0.0, 0.0, 10.0, 30.0, 55.0))),
        job,
        tuple(draw(st.lists(lasts, min_size=1, max_size=3))),
    )


EPOCH_S = st.sampled_from((1.0, 4.0, 4.5, 10.0, 40.0))
TRAINEES = st.builds(
    Trainee,
    epochs=st.integers(1, 12),
    epoch_s=st.lists(EPOCH_S, min_size=1, max_size=4).map(tuple),
    restart_s=st.sampled_from((0.0, 1.0, 30.0, 120.0)),
    every=st.sampled_from((1, 1, 1, 3, None)),
    says_total=st.booleans(),
)
RESUMING = TRAINEES.map(lambda trainee: replace(trainee, every=trainee.every or 1))


def trainees(mode: ResizeMode) -> st.SearchStrategy[Trainee]:
    """One that says `immediate` resumes by itself: it makes checkpoints."""
    return RESUMING if mode is ResizeMode.IMMEDIATE else TRAINEES


@st.composite
def _outages(draw: st.DrawFn, nodes: tuple[Node, ...]) -> Outage:
    since = draw(st.sampled_from((0.0, 15.0, 40.0)))
    return Outage(draw(st.sampled_from(nodes)).id, since, since + draw(st.sampled_from((10.0, 100.0))))


@st.composite
def training_stories(draw: st.DrawFn) -> Story:
    """Few GPUs, jobs that train on them, and some that are in a hurry."""
    nodes = tuple(
        Node(f"n{n}", 64000, 65536, tuple(Device(f"n{n}-{d}", 16384, "test", simulated=True) for d in range(gpus)))
        for n, gpus in enumerate(draw(st.sampled_from(((4,), (4,), (2, 4), (8,), (3, 1)))))
    )
    numbers = range(1, 1 + draw(st.integers(3, 9)))
    lags = tuple(draw(st.lists(st.sampled_from((0.0, 0.0, 1.0, 7.0)), min_size=1, max_size=4)))
    users = (("anna", draw(LIMITED)),)
    return Story(nodes, tuple(draw(_training_arrivals(number)) for number in numbers), users=users, lags_s=lags)


LIMITED = st.builds(Standing, gpus_max=st.sampled_from((None, 3, 4)))


@st.composite
def _training_arrivals(draw: st.DrawFn, number: int) -> Arrival:
    user = draw(st.sampled_from(("", "", "anna", "ben")))
    low = draw(st.sampled_from((1, 1, 2, 3)))
    high, priority = low + draw(st.sampled_from((0, 1, 3))), draw(st.sampled_from((0, 0, 0, 5, 9)))
    if draw(st.booleans()):
        shape = Shape(((Resources(1000, 0, low), 1),), Dimension.GPUS, low, high, is_array=False, time_limit_s=None)
    else:
        shape = Shape(((Resources(1000, 0, 1), low),), Dimension.TASKS, low, high, is_array=False, time_limit_s=None)
    mode = draw(st.sampled_from((*ResizeMode, ResizeMode.AT_CHECKPOINT, ResizeMode.AT_CHECKPOINT)))
    estimate_s = draw(st.sampled_from((None, None, None, 30.0)))
    job = JobView(number, shape, priority, JobState.QUEUED, mode=mode, user=user, estimate_s=estimate_s)
    return Arrival(draw(st.sampled_from((0.0, 0.0, 20.0, 60.0, 130.0, 300.0))), job, (), draw(trainees(job.mode)))


USERS = ("anna", "ben", "cleo")
STANDINGS = st.builds(
    Standing,
    used_gpu_s=st.sampled_from((0.0, 0.0, 1000.0, 50000.0)),
    gpus_max=st.sampled_from((None, None, 2, 3)),
    running_max=st.sampled_from((None, None, 2)),
)
SHARES_MIB = (1000, 2048, 4096, 6000, 9000, 20000)
WHOLE_OR_SHARED = st.sampled_from(((0, 0), (1, 0), (2, 0), (1, 10000))) | st.tuples(
    st.just(0), st.sampled_from(SHARES_MIB)
)


@st.composite
def sharing_stories(draw: st.DrawFn) -> Story:
    """Shares of GPUs, whole ones and exclusive ones, arrays, jobs that use more or less than they said, outsiders."""
    nodes = tuple(draw(_mixed_nodes(f"n{number}")) for number in range(draw(st.sampled_from((1, 1, 2, 3)))))
    numbers = range(1, 1 + draw(st.integers(4, 12)))
    intrusions = tuple(draw(st.lists(_intrusions(nodes), max_size=3, unique_by=lambda one: (one.node, one.device))))
    lags = tuple(draw(st.lists(st.sampled_from(LAGS_S), min_size=1, max_size=4)))
    arrivals = tuple(draw(_sharing_arrivals(n)) for n in numbers)
    users = tuple((user, draw(STANDINGS)) for user in USERS)
    return Story(nodes, arrivals, intrusions=intrusions, users=users, lags_s=lags)


@st.composite
def _mixed_nodes(draw: st.DrawFn, name: str) -> Node:
    sizes = draw(st.lists(st.sampled_from((8192, 16384, 16384, 24576)), min_size=1, max_size=4))
    devices = tuple(Device(f"{name}-{n}", mib, "test", simulated=True) for n, mib in enumerate(sizes))
    return Node(name, draw(st.sampled_from((2000, 4000, 16000))), 16384, devices)


@st.composite
def _intrusions(draw: st.DrawFn, nodes: tuple[Node, ...]) -> Intrusion:
    node = draw(st.sampled_from(nodes))
    since = draw(st.sampled_from((0.0, 15.0, 40.0)))
    until = since + draw(st.sampled_from((10.0, 100.0)))
    return Intrusion(node.id, draw(st.sampled_from(node.devices)).id, draw(st.sampled_from((300, 5000))), since, until)


@st.composite
def _sharing_arrivals(draw: st.DrawFn, number: int) -> Arrival:
    (gpus, memory_mib), limit = draw(WHOLE_OR_SHARED), draw(LIMITS)
    task = Resources(draw(st.sampled_from((0, 500, 1000))), draw(st.sampled_from((0, 0, 4096))), gpus, memory_mib)
    is_array, width = draw(st.booleans()), draw(st.integers(1, 3))
    shape = Shape(
        ((task, 1 if is_array else width),), Dimension.TASKS, 1 if is_array else width, width, is_array, limit
    )
    tasks = draw(st.integers(1, 6)) if is_array else 1
    user = draw(st.sampled_from(USERS))
    job = JobView(number, shape, draw(st.integers(0, 1)), JobState.QUEUED, unfinished=tasks, user=user)
    lasts = tuple(
        draw(st.lists(st.sampled_from([s for s in LASTS_S if limit is None or s <= limit]), min_size=1, max_size=2))
    )
    uses = draw(st.none() | st.sampled_from((500, 4096, 7000))) if task.is_share and not is_array else None
    return Arrival(draw(st.sampled_from((0.0, 0.0, 10.0, 30.0, 55.0))), job, lasts, uses_mib=uses)


ZONE = "zone"
LABELS = st.sampled_from(((), ((ZONE, "a"),), ((ZONE, "a"),), ((ZONE, "b"),), ((ZONE, "b"), ("cards", "4"))))
TAINTS = st.sampled_from(
    (
        (),
        (),
        (),
        (Taint("gpu", "yes", Effect.NO_SCHEDULE),),
        (Taint("old", "", Effect.PREFER_NO_SCHEDULE),),
        (Taint("gpu", "yes", Effect.NO_EXECUTE), Taint("mine", "", Effect.NO_SCHEDULE)),
    )
)
TERMS = st.sampled_from(
    (
        Term((Requirement(ZONE, Operator.NOT_IN, ("b",)),)),
        Term((Requirement("cards", Operator.GT, ("2",)),)),
        Term((Requirement(ZONE, Operator.EXISTS),), (Requirement(NODE_NAME, Operator.IN, ("n0",)),)),
        Term(),
    )
)
TOLERATIONS = st.sampled_from(
    (
        Toleration("gpu", "yes"),
        Toleration("gpu", None, Effect.NO_SCHEDULE),
        Toleration("", None),
        Toleration(CORDON.key, None),
    )
)
RULES = st.none() | st.builds(
    PlacementRules,
    selector=st.sampled_from(((), (), ((ZONE, "a"),), ((ZONE, "b"),))),
    terms=st.sampled_from(((), ())) | st.lists(TERMS, min_size=1, max_size=2).map(tuple),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
    company=st.sampled_from((Company.ANY, Company.ANY, Company.APART, Company.TOGETHER)),
)
TASKS_MAX = st.sampled_from((None, None, 1, 2, 3, 6))


@st.composite
def ruled(draw: st.DrawFn, plain: st.SearchStrategy[Story], *, cordons_max: int = 2) -> Story:
    """The same on a cluster: labels, taints, limits of tasks, cordons that come and go, and jobs that have rules."""
    story = draw(plain)
    nodes = tuple(
        replace(node, labels=draw(LABELS), taints=draw(TAINTS), tasks_max=draw(TASKS_MAX)) for node in story.nodes
    )
    shapes: dict[Shape, Shape] = {}
    for one in story.arrivals:
        if one.job.shape not in shapes:
            rules = tuple(draw(RULES) for _ in one.job.shape.roles)
            shapes[one.job.shape] = replace(one.job.shape, rules=rules)
    arrivals = tuple(replace(one, job=replace(one.job, shape=shapes[one.job.shape])) for one in story.arrivals)
    cordons = tuple(draw(st.lists(_outages(nodes), max_size=cordons_max)))
    return replace(story, nodes=nodes, arrivals=arrivals, cordons=cordons)


@st.composite
def punctual_stories(draw: st.DrawFn) -> Story:
    """Gangs of one priority that end exactly at their limits, on machines that always answer, without lag."""
    shapes = draw(st.lists(gangs(limits=st.sampled_from((30.0, 60.0, 100.0, 300.0, 900.0))), min_size=3, max_size=6))
    moments = draw(st.lists(st.sampled_from((0.0, 0.0, 10.0, 35.0, 90.0)), min_size=8, max_size=16))
    arrivals = (_punctual(number, at, draw(st.sampled_from(shapes))) for number, at in enumerate(sorted(moments), 1))
    return Story(draw(clusters()), tuple(arrivals))


def _punctual(number: int, at: float, shape: Shape) -> Arrival:
    assert shape.time_limit_s is not None
    return Arrival(at, JobView(number, shape, 0, JobState.QUEUED), (shape.time_limit_s,))
