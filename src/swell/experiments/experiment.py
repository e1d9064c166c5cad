"""What is asked for in an experiment file? A workload, a cluster and contenders, checked before anything is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import (
    NAME,
    OBJECT_NAME,
    describe,
    did_you_mean,
    is_true,
    quantity,
    refuse_unknown,
    take_choice,
    take_list,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.yaml_text import parse_documents
from swell.model.codec import Variables
from swell.model.policy import POLICY_NAMES
from swell.model.quantity import parse_cpus, parse_memory, parse_seconds

REPEATS_MAX, GANGS_MAX, SIZE_MAX, NODES_MAX, NAMESPACES_MAX = 100, 20_000, 5_000, 20_000, 50
STUCK_S = 120.0
RANK_IMAGE = "busybox:1.36"
KUBERNETES_CONTENDERS = ("default", "coscheduling", "kueue", "fluence", "swell")
#: As whom the simulator plays them; the others have no model there.
IN_SIMULATOR = {"default": "kube-default", **{name: name for name in POLICY_NAMES}}


class ArrivalPattern(StrEnum):
    AT_ONCE = "at-once"
    EVERY = "every"  # one gang after the other, evenly
    POISSON = "poisson"  # at random, so many seconds apart on average


class ObjectForm(StrEnum):
    """As what a gang is created on Kubernetes."""

    JOB = "job"
    PODS = "pods"  # with a PodGroup


@dataclass(frozen=True, slots=True)
class GangShape:
    """Gangs of one kind."""

    count: int
    size_min: int
    size_max: int  #: sizes are drawn from this range
    cpus_milli: int = 1000
    memory_mib: int = 64
    gpus: int = 0
    duration_s: float = 60.0
    grows_to: int = 0  #: it may be resized up to so many ranks; 0: it may not


@dataclass(frozen=True, slots=True)
class ExperimentWorkload:
    name: str
    shapes: tuple[GangShape, ...]
    arrival: ArrivalPattern = ArrivalPattern.AT_ONCE
    apart_s: float = 0.0  #: between two gangs, evenly or on average
    shuffle: bool = True  #: the order of gangs is drawn; False: as they stand in the file
    form: ObjectForm = ObjectForm.JOB
    template: str = ""  #: text of a manifest with ${name}, ${size} …; empty: a Job or pods of ours
    image: str = RANK_IMAGE  #: of a rank of ours on a real node; it needs sh and nc

    @property
    def gangs(self) -> int:
        return sum(shape.count for shape in self.shapes)


class ClusterKind(StrEnum):
    SIMULATOR = "simulator"
    KUBERNETES = "kubernetes"


#: Simulated time takes no cluster from anybody.
LONGEST_S = {ClusterKind.SIMULATOR: 30 * 86400.0, ClusterKind.KUBERNETES: 3600.0}


@dataclass(frozen=True, slots=True)
class ClusterWanted:
    kind: ClusterKind
    nodes: int = 0  #: of the simulator, or of the test cluster
    cpus: int = 0  #: of each
    gpus: int = 0
    context: str = ""  #: of the kubeconfig; empty: the one it names itself
    kubeconfig: str = ""  #: empty: where kubectl looks
    namespace: str = "swell-experiment"
    system_namespaces: tuple[str, ...] = ()  #: beside Kubernetes' own: their pods belong to the cluster or a scheduler


@dataclass(frozen=True, slots=True)
class ContenderWanted:
    name: str
    scheduler: str  #: schedulerName of its pods
    labels: Variables = ()  #: of the gang's object and its pods; ${name} and ${size} are filled in
    policy: str = ""  #: of the simulator, or of a Swell server; empty: it has none
    is_custom: bool = False  #: whoever wrote the file says that it is installed


@dataclass(frozen=True, slots=True)
class Experiment:
    name: str
    workload: ExperimentWorkload
    cluster: ClusterWanted
    contenders: tuple[ContenderWanted, ...]
    seed: int = 1
    repeats: int = 1
    stuck_s: float = STUCK_S  #: without any progress, a run is given up as stuck
    longest_s: float = LONGEST_S[ClusterKind.SIMULATOR]  #: a run is over then, whatever happens
    source: str = field(default="", compare=False)  #: where it was read from


FIELDS = ("name", "seed", "repeats", "workload", "cluster", "contenders", "stuckAfter", "longest")
WORKLOAD_FIELDS = ("name", "gangs", "arrival", "apart", "shuffle", "as", "template", "image")
GANG_FIELDS = ("count", "size", "cpus", "memory", "gpus", "duration", "growsTo")
CONTENDER_FIELDS = ("name", "schedulerName", "labels", "policy")


def read_experiment(path: Path) -> Experiment:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected(f"{path}: the experiment cannot be read: {error}") from error
    try:
        return parse_experiment(text, path.parent, str(path))
    except Rejected as problem:
        raise type(problem)(f"{path}: {problem}") from None


def parse_experiment(text: str, folder: Path, source: str = "") -> Experiment:
    documents = parse_documents(text, lambda _: False)
    if len(documents) != 1:
        raise Rejected(f"an experiment file holds one document, but this has {len(documents)}")
    given = take_mapping(documents[0].value, "the experiment")
    refuse_unknown(given, FIELDS, "the experiment")
    missing = [name for name in ("workload", "cluster", "contenders") if name not in given]
    if missing:
        raise Rejected(f"the experiment has no {missing[0]!r}; it needs workload, cluster and contenders")
    workload = read_workload(given["workload"], folder)
    cluster = read_cluster(given["cluster"])
    return checked(
        Experiment(
            _name(given.get("name", workload.name)),
            workload,
            cluster,
            tuple(read_contender(one, cluster.kind) for one in take_list(given["contenders"], "contenders")),
            whole_number(given.get("seed", 1), "seed", low=0, high=2**31),
            whole_number(given.get("repeats", 1), "repeats", low=1, high=REPEATS_MAX),
            _seconds(given.get("stuckAfter", STUCK_S), "stuckAfter", low=1.0),
            _seconds(given.get("longest", LONGEST_S[cluster.kind]), "longest", low=1.0),
            source,
        )
    )


def _name(value: object) -> str:
    """It is a folder's name, too."""
    name = take_text(value, "name")
    if not NAME.fullmatch(name):
        raise Rejected(
            f"name must be letters, digits, '.', '_' and '-', a letter or digit first and at most 63 in all, "
            f"but is {describe(name)}"
        )
    return name


def checked(experiment: Experiment) -> Experiment:
    """What fits together only as a whole."""
    names = [one.name for one in experiment.contenders]
    if not names:
        raise Rejected("contenders is empty; name at least one, as in [default, swell]")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Rejected(f"contenders has {twice[0]!r} twice; give one of them another name")
    workload, is_real = experiment.workload, experiment.cluster.kind is ClusterKind.KUBERNETES
    if is_real and any(shape.grows_to for shape in workload.shapes):
        raise Rejected(f"workload {workload.name}: gangs with growsTo run in the simulator only; leave growsTo out")
    if not is_real and workload.template:
        raise Rejected("workload.template needs a Kubernetes cluster; the simulator runs gangs with a duration")
    if "kueue" in names and workload.form is ObjectForm.PODS:
        raise Rejected("contender kueue admits Jobs, not plain pods; write `as: job` in workload")
    return experiment


# -- the workload ----------------------------------------------------------------------------------------------


def read_workload(given: object, folder: Path) -> ExperimentWorkload:
    from swell.experiments.workloads import INCLUDED, included

    if isinstance(given, str):
        return included(given)
    fields = take_mapping(given, "workload")
    refuse_unknown(fields, WORKLOAD_FIELDS, "workload")
    name = take_text(fields.get("name", "workload"), "workload.name")
    if "gangs" not in fields:
        if name in INCLUDED and set(fields) == {"name"}:
            return included(name)
        raise Rejected(f"workload needs gangs, or the name of an included workload{did_you_mean(name, list(INCLUDED))}")
    shapes = tuple(read_shape(one, f"workload.gangs[{n}]") for n, one in enumerate(take_list(fields["gangs"], "gangs")))
    found = ExperimentWorkload(
        name,
        shapes,
        ArrivalPattern(take_choice(fields.get("arrival", "at-once"), tuple(ArrivalPattern), "workload.arrival")),
        _seconds(fields.get("apart", 0), "workload.apart"),
        is_true(fields.get("shuffle", True), "workload.shuffle"),
        ObjectForm(take_choice(fields.get("as", "job"), tuple(ObjectForm), "workload.as")),
        _template(fields.get("template"), folder),
        take_text(fields.get("image", RANK_IMAGE), "workload.image"),
    )
    return _sensible(found)


def _sensible(found: ExperimentWorkload) -> ExperimentWorkload:
    if not 1 <= found.gangs <= GANGS_MAX:
        raise Rejected(f"workload has {found.gangs} gangs; from 1 to {GANGS_MAX} are possible")
    if (found.arrival is ArrivalPattern.AT_ONCE) != (found.apart_s == 0):
        raise Rejected("workload.apart says how many seconds lie between gangs that arrive `every` or `poisson`")
    return found


def read_shape(given: object, where: str) -> GangShape:
    fields = take_mapping(given, where)
    refuse_unknown(fields, GANG_FIELDS, where)
    low, high = _sizes(fields.get("size", "1"), f"{where}.size")
    grows_to = whole_number(fields.get("growsTo", 0), f"{where}.growsTo", low=0, high=SIZE_MAX)
    if grows_to and grows_to < high:
        raise Rejected(f"{where}.growsTo is {grows_to}, less than its size, {high}")
    duration = _seconds(fields.get("duration", 60), f"{where}.duration")
    if duration <= 0:
        raise Rejected(f"{where}.duration must be more than 0 seconds")
    return GangShape(
        whole_number(fields.get("count", 1), f"{where}.count", low=1, high=GANGS_MAX),
        low,
        high,
        quantity(parse_cpus, fields.get("cpus", "1"), f"{where}.cpus"),
        quantity(parse_memory, fields.get("memory", "64MiB"), f"{where}.memory"),
        whole_number(fields.get("gpus", 0), f"{where}.gpus", low=0, high=64),
        duration,
        grows_to,
    )


def _sizes(value: object, where: str) -> tuple[int, int]:
    """As in 4 or 2..6; 2-6 is read as well."""
    low, _, high = str(value).replace("-", "..").partition("..")
    found = tuple(whole_number(one, where, low=1, high=SIZE_MAX) for one in (low, high or low))
    if found[0] > found[1]:
        raise Rejected(f"{where} is {value}; the first number must not be the larger one")
    return found[0], found[1]


def _template(value: object, folder: Path) -> str:
    if value is None:
        return ""
    path = folder / take_text(value, "workload.template")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected(f"workload.template: {path} cannot be read: {error}") from error


def _seconds(value: object, where: str, *, low: float = 0.0) -> float:
    is_none = str(value).strip() in ("0", "0.0", "0s")  # no duration of a job can be that
    found = 0.0 if is_none else float(quantity(parse_seconds, value, where))
    if found < low:
        raise Rejected(f"{where} must be at least {low:g} seconds, but is {found:g}")
    return found


# -- the cluster and the contenders ----------------------------------------------------------------------------


def read_cluster(given: object) -> ClusterWanted:
    fields = take_mapping(given, "cluster")
    refuse_unknown(fields, tuple(ClusterKind), "cluster")
    if len(fields) != 1:
        raise Rejected("cluster must be `simulator: {nodes, cpus, gpus}` or `kubernetes: {context, namespace}`")
    [(kind, value)] = fields.items()
    inner = take_optional(value, f"cluster.{kind}")
    if kind == ClusterKind.KUBERNETES:
        return _kubernetes(inner)
    refuse_unknown(inner, ("nodes", "cpus", "gpus"), "cluster.simulator")
    return ClusterWanted(
        ClusterKind.SIMULATOR,
        whole_number(inner.get("nodes", 8), "cluster.simulator.nodes", low=1, high=NODES_MAX),
        whole_number(inner.get("cpus", 64), "cluster.simulator.cpus", low=1, high=4096),
        whole_number(inner.get("gpus", 0), "cluster.simulator.gpus", low=0, high=64),
    )


def _kubernetes(inner: dict[str, Any]) -> ClusterWanted:
    refuse_unknown(inner, ("context", "kubeconfig", "namespace", "systemNamespaces"), "cluster.kubernetes")
    return ClusterWanted(
        ClusterKind.KUBERNETES,
        context=take_text(inner.get("context", ""), "cluster.kubernetes.context"),
        kubeconfig=take_text(inner.get("kubeconfig", ""), "cluster.kubernetes.kubeconfig"),
        namespace=take_text(inner.get("namespace", "swell-experiment"), "cluster.kubernetes.namespace"),
        system_namespaces=_system_namespaces(inner.get("systemNamespaces"), "cluster.kubernetes.systemNamespaces"),
    )


def _system_namespaces(value: object, where: str) -> tuple[str, ...]:
    given = take_list(value, where)
    if len(given) > NAMESPACES_MAX:
        raise Rejected(f"{where} has {len(given)} names; up to {NAMESPACES_MAX} are possible")
    names = sorted({take_text(one, where) for one in given})
    for name in names:
        if not OBJECT_NAME.fullmatch(name):
            raise Rejected(
                f"{where} must be names of namespaces, as in [fluence, cert-manager], but has {describe(name)}"
            )
    return tuple(names)


def read_contender(given: object, cluster: ClusterKind) -> ContenderWanted:
    if isinstance(given, str):
        return named_contender(given, cluster)
    fields = take_mapping(given, "contenders: a contender")
    refuse_unknown(fields, CONTENDER_FIELDS, "contenders: a contender")
    if cluster is ClusterKind.SIMULATOR:
        raise Rejected(f"contenders of the simulator are policies by name: {', '.join(IN_SIMULATOR)}")
    if "policy" in fields:
        return _policy_contender(fields)
    scheduler = take_text(fields.get("schedulerName"), "contenders: schedulerName")
    labels = take_optional(fields.get("labels"), "contenders: labels")
    return ContenderWanted(
        take_text(fields.get("name", scheduler), "contenders: name"),
        scheduler,
        tuple(sorted((name, take_text(text, f"contenders: labels.{name}")) for name, text in labels.items())),
        is_custom=True,
    )


def _policy_contender(fields: dict[str, Any]) -> ContenderWanted:
    policy = take_choice(fields["policy"], POLICY_NAMES, "contenders: policy")
    if set(fields) - {"name", "policy"}:
        raise Rejected("contenders: policy is that of a Swell server, whose schedulerName is swell; leave the rest out")
    return ContenderWanted(take_text(fields.get("name", policy), "contenders: name"), "swell", policy=policy)


def named_contender(name: str, cluster: ClusterKind) -> ContenderWanted:
    if cluster is ClusterKind.SIMULATOR:
        if name not in IN_SIMULATOR:
            why = "has no model in the simulator" if name in KUBERNETES_CONTENDERS else "is unknown"
            raise Rejected(f"contender {name!r} {why}{did_you_mean(name, list(IN_SIMULATOR))}")
        return ContenderWanted(name, name, policy=IN_SIMULATOR[name])
    if name == "default":
        return ContenderWanted(name, "default-scheduler")
    if name in POLICY_NAMES and name != "kube-default":
        return ContenderWanted(name, "swell", policy=name)
    if name == "kueue":
        return ContenderWanted(name, "default-scheduler", (("kueue.x-k8s.io/queue-name", "experiment"),))
    if name in ("coscheduling", "fluence"):
        size = (("fluence.group-size", "${size}"),) if name == "fluence" else ()
        return ContenderWanted(name, name, (*size, ("scheduling.x-k8s.io/pod-group", "${name}")))
    known = [*KUBERNETES_CONTENDERS, *(one for one in POLICY_NAMES if one not in ("swell", "kube-default"))]
    raise Rejected(
        f"contender {name!r} is unknown{did_you_mean(name, known)}; "
        "another scheduler that is installed: {name: …, schedulerName: …, labels: {…}}"
    )
