"""What does `swell experiment run` do with what it was told?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from swell.errors import Rejected
from swell.experiments.experiment import (
    IN_SIMULATOR,
    KUBERNETES_CONTENDERS,
    LONGEST_S,
    ClusterKind,
    ClusterWanted,
    Experiment,
    checked,
    named_contender,
    read_experiment,
)
from swell.experiments.race import ClusterUnderTest, RaceProgress, laps, race
from swell.experiments.report import write_report
from swell.experiments.results import ResultsFolder
from swell.experiments.simulated import SimulatedCluster
from swell.experiments.workloads import INCLUDED, find_included, with_count
from swell.model.quantity import number_of

CONTENDERS = ("default", "swell")


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """What was typed. None: nothing was said about it."""

    file: str | None
    config_name: str | None
    cluster: str | None
    context: str | None
    kubeconfig: str | None
    contenders: tuple[str, ...]
    batches: int | None
    iters: int | None
    shuffle: bool | None
    seed: int | None
    outdir: str | None


def read_request(asked: ExperimentRequest) -> Experiment:
    """From the file, or from an included workload; options go above either."""
    if asked.file is not None and asked.config_name is not None:
        raise Rejected("-f names a file and --config-name an included workload; give only one of them")
    found = _by_name(asked) if asked.file is None else read_experiment(Path(asked.file))
    if asked.file is not None and any((asked.cluster, asked.context, asked.kubeconfig)):
        raise Rejected("the file says which cluster; leave --cluster, --context and --kubeconfig out")
    if asked.file is not None and asked.contenders:
        found = replace(found, contenders=tuple(named_contender(one, found.cluster.kind) for one in asked.contenders))
    if asked.iters is not None:
        found = replace(found, workload=with_count(found.workload, asked.iters))
    if asked.shuffle is not None:
        found = replace(found, workload=replace(found.workload, shuffle=asked.shuffle))
    if asked.batches is not None:
        found = replace(found, repeats=asked.batches)
    return checked(found if asked.seed is None else replace(found, seed=asked.seed))


def _by_name(asked: ExperimentRequest) -> Experiment:
    if asked.config_name is None:
        raise Rejected(
            "name an experiment file with -f, or an included workload with --config-name: mixed is the default of the "
            "scheduler experiments' run10, lammps-kind that of run7; `swell experiment list` shows all"
        )
    known = find_included(asked.config_name)
    is_real = bool(asked.context or asked.kubeconfig) or asked.cluster == ClusterKind.KUBERNETES
    kind = ClusterKind.KUBERNETES if is_real else ClusterKind.SIMULATOR
    without_model = [one for one in asked.contenders if one in KUBERNETES_CONTENDERS and one not in IN_SIMULATOR]
    if not is_real and without_model:
        raise Rejected(
            f"contender {without_model[0]!r} has no model in the simulator; measure it on a Kubernetes cluster: name "
            "it with --kubeconfig FILE or --context NAME"
        )
    cluster = (
        ClusterWanted(kind, context=asked.context or "", kubeconfig=asked.kubeconfig or "")
        if is_real
        else ClusterWanted(kind, known.nodes, known.cpus, known.gpus)
    )
    contenders = tuple(named_contender(one, kind) for one in asked.contenders or CONTENDERS)
    return Experiment(known.workload.name, known.workload, cluster, contenders, longest_s=LONGEST_S[kind])


def folder_of(asked: ExperimentRequest, experiment: Experiment) -> Path:
    return Path(asked.outdir) if asked.outdir is not None else Path("results") / experiment.name


def cluster_of(experiment: Experiment, path: Path, programs: Path | None) -> ClusterUnderTest:
    if experiment.cluster.kind is ClusterKind.SIMULATOR:
        return SimulatedCluster(experiment.cluster)
    from swell.experiments.kubernetes.cluster import KubernetesCluster

    return KubernetesCluster(experiment, path, programs)


def announce(experiment: Experiment, path: Path) -> str:
    """What is going to happen."""
    names = ", ".join(one.name for one in experiment.contenders)
    runs = experiment.repeats * len(experiment.contenders)
    return f"{experiment.name}: {number_of(runs, 'run')} ({names}; {experiment.repeats} each), results in {path}"


def run(experiment: Experiment, path: Path, progress: RaceProgress, programs: Path | None = None) -> str:
    """Measures what is missing in that folder, and writes the report. `programs`: of contenders that are not ours."""
    ResultsFolder.refuse_another(path, experiment)
    with closing(cluster_of(experiment, path, programs)) as cluster:
        cluster.check(experiment)
        folder = ResultsFolder.prepare(path, experiment)
        race(experiment, cluster, folder, progress)
    page, text = write_report(folder)
    return f"{text}\n\nreport: {page}"


def left_of(experiment: Experiment, path: Path) -> int:
    """Runs that are not measured yet."""
    return sum(not lap.is_done for lap in laps(experiment, ResultsFolder(path)))


def report(path: str, out: str | None) -> str:
    page, text = write_report(ResultsFolder.existing(Path(path)), None if out is None else Path(out))
    return f"{text}\n\nreport: {page}"


def listing() -> str:
    rows = [f"  {name:22} {one.about}" for name, one in INCLUDED.items()]
    return "\n".join(
        [
            "workloads (--config-name):",
            *rows,
            "",
            f"contenders on Kubernetes: {_words(KUBERNETES_CONTENDERS)}, and policies of Swell by name",
            f"contenders in the simulator: {_words(tuple(IN_SIMULATOR))}",
        ]
    )


def _words(names: Sequence[str]) -> str:
    return ", ".join(names)
