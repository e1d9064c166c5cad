"""Which experiment files are read, and what is said about the others?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.__main__ import parser
from swell.errors import Rejected
from swell.experiments.experiment import (
    ArrivalPattern,
    ClusterKind,
    ClusterWanted,
    ContenderWanted,
    Experiment,
    ExperimentWorkload,
    GangShape,
    ObjectForm,
    parse_experiment,
    read_experiment,
)
from swell.experiments.too_large import refuse_too_large
from swell.experiments.workloads import INCLUDED, draw_gangs
from swell.model.codec import from_document, to_document
from swell.model.resources import Resources

EXAMPLES = Path(__file__).parents[2] / "examples/experiments"

WHOLE = """\
name: monday
seed: 7
repeats: 3
stuckAfter: 2m
longest: 1h
workload:
  name: mine
  arrival: poisson
  apart: 5s
  as: pods
  shuffle: false
  gangs:
  - {count: 10, size: 2..6, cpus: 500m, memory: 1GiB, gpus: 1, duration: 90s}
  - {size: 4}
cluster: {kubernetes: {context: lab, namespace: ann, systemNamespaces: [fluence, cert-manager]}}
contenders:
- default
- coscheduling
- {name: ours, schedulerName: mine, labels: {group: "${name}"}}
- {policy: fifo}
"""


def test_a_file_says_workload_cluster_and_contenders(tmp_path: Path) -> None:
    group = ("scheduling.x-k8s.io/pod-group", "${name}")
    found = parse_experiment(WHOLE, tmp_path)
    assert found == Experiment(
        "monday",
        ExperimentWorkload(
            "mine",
            (GangShape(10, 2, 6, 500, 1024, 1, 90.0), GangShape(1, 4, 4)),
            ArrivalPattern.POISSON,
            5.0,
            shuffle=False,
            form=ObjectForm.PODS,
        ),
        ClusterWanted(
            ClusterKind.KUBERNETES, context="lab", namespace="ann", system_namespaces=("cert-manager", "fluence")
        ),
        (
            ContenderWanted("default", "default-scheduler"),
            ContenderWanted("coscheduling", "coscheduling", (group,)),
            ContenderWanted("ours", "mine", (("group", "${name}"),), is_custom=True),
            ContenderWanted("fifo", "swell", policy="fifo"),
        ),
        seed=7,
        repeats=3,
        stuck_s=120.0,
        longest_s=3600.0,
    )
    assert from_document(Experiment, to_document(found)) == found


SIMULATOR = "cluster: {simulator: {nodes: 2}}\n"
TINY = "workload: tiny\n"
OURS = "contenders: [swell]\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TINY + SIMULATOR, "the experiment has no 'contenders'; it needs workload, cluster and contenders"),
        (TINY + SIMULATOR + OURS + "sed: 1\n", "the experiment has no field 'sed'; did you mean 'seed'?"),
        (TINY + SIMULATOR + "contenders: [swel]\n", "contender 'swel' is unknown; did you mean 'swell'?"),
        (TINY + SIMULATOR + "contenders: [kueue]\n", "contender 'kueue' has no model in the simulator; known: "),
        *(
            (f"name: {name}\n" + TINY + SIMULATOR + OURS, "name must be letters, digits, '.', '_' and '-'")
            for name in ("../x", "a/b", ".", "..", "/etc", ".hidden", '""', '"a b"', "x" * 64)
        ),
        (TINY + SIMULATOR + "contenders: []\n", "contenders is empty; name at least one"),
        (TINY + SIMULATOR + "contenders: [swell, swell]\n", "contenders has 'swell' twice"),
        ("workload: clog\n" + SIMULATOR + OURS, "there is no included workload 'clog'; did you mean 'clogging'?"),
        ("workload: {gangs: [{size: 6..2}]}\n" + SIMULATOR + OURS, "workload.gangs[0].size is 6..2; the first number"),
        (
            "workload: {gangs: [{size: 0}]}\n" + SIMULATOR + OURS,
            "workload.gangs[0].size is 0; it must be from 1 to 5000",
        ),
        (
            "workload: {gangs: [{count: 99999}]}\n" + SIMULATOR + OURS,
            "workload.gangs[0].count is 99999; it must be from 1 to",
        ),
        ("workload: {gangs: [{duration: 0}]}\n" + SIMULATOR + OURS, "workload.gangs[0].duration must be more than 0"),
        (
            "workload: {gangs: [{growsTo: 1, size: 2}]}\n" + SIMULATOR + OURS,
            "workload.gangs[0].growsTo is 1, less than",
        ),
        ("workload: {gangs: []}\n" + SIMULATOR + OURS, "workload has 0 gangs; from 1 to 20000"),
        ("workload: {gangs: [{}], arrival: every}\n" + SIMULATOR + OURS, "workload.apart says how many seconds"),
        ("workload: {gangs: [{}], arrival: dayly}\n" + SIMULATOR + OURS, "workload.arrival must be one of at-once"),
        (
            "workload: {gangs: [{}], template: gone.yaml}\ncluster: {kubernetes: {}}\n" + OURS,
            "workload.template: ",
        ),
        (TINY + "cluster: {}\n" + OURS, "cluster must be `simulator: {nodes, cpus, gpus}` or `kubernetes:"),
        (TINY + "cluster: {slurm: {}}\n" + OURS, "cluster has no field 'slurm'"),
        *(
            (
                TINY + f"cluster: {{kubernetes: {{systemNamespaces: {names}}}}}\n" + OURS,
                f"cluster.kubernetes.systemNamespaces {problem}",
            )
            for names, problem in (
                ("fluence", "must be a list"),
                ("[{}]", "must be text, but is "),
                ('["a b"]', "must be names of namespaces, as in [fluence, cert-manager], but has 'a b'"),
                (str([f"n{number}" for number in range(51)]), "has 51 names; up to 50 are possible"),
            )
        ),
        (TINY + "cluster: {kubernetes: {}}\ncontenders: [kueue]\n", "contender kueue admits Jobs, not plain pods"),
        (
            "workload: elastic-mix\ncluster: {kubernetes: {}}\n" + OURS,
            "workload elastic-mix: gangs with growsTo run in the simulator only",
        ),
        (TINY + SIMULATOR + "contenders: [{schedulerName: x}]\n", "contenders of the simulator are policies by name"),
        ("- a\n", "the experiment must be a mapping"),
        ("a: [\n", "the manifest is not valid YAML"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(text)
    with pytest.raises(Rejected) as refusal:
        read_experiment(file)
    assert str(refusal.value).startswith(f"{file}: {problem}")


@pytest.mark.parametrize(("name", "nodes", "cpus"), [("clogging", 8, 3), ("gangs-500x20", 1000, 64)])
def test_an_example_is_ready_to_run_on_the_test_cluster_that_it_names(name: str, nodes: int, cpus: int) -> None:
    """It is the included workload of that name, but may end sooner, and every gang of it fits."""
    path = EXAMPLES / f"{name}.yaml"
    found = read_experiment(path)
    assert [one.name for one in found.contenders] == ["default", "coscheduling", "kueue", "swell"]
    assert (found.name, found.repeats, found.workload.shuffle, found.stuck_s) == (name, 3, True, 120.0)
    assert found.cluster.kubeconfig == "/tmp/swell-cluster/kubeconfig"
    [shape], [asked] = found.workload.shapes, INCLUDED[name].workload.shapes
    assert shape == replace(asked, duration_s=shape.duration_s)
    assert shape.duration_s <= asked.duration_s

    words = re.search(r'CLUSTER="([^"]*)"', path.read_text())
    assert words is not None
    told = parser().parse_args(["up", *words[1].split()])
    assert (told.kwok, told.kwok_cpus, told.kwok_gpus) == (nodes, cpus, 0)
    refuse_too_large(found, [Resources(cpus * 1000, 256 * 1024)] * nodes)


def test_no_example_is_left_out() -> None:
    assert sorted(path.stem for path in EXAMPLES.iterdir()) == ["clogging", "gangs-500x20"]


def test_a_seed_draws_the_same_gangs_for_every_contender_and_others_in_the_next_run() -> None:
    workload = INCLUDED["clogging"].workload
    first = draw_gangs(workload, 1, 1)

    assert first == draw_gangs(workload, 1, 1)
    assert first != draw_gangs(workload, 1, 2)
    assert len(first) == 50
    assert {gang.size for gang in first} == {2, 3, 4, 5, 6}
    assert {gang.submit_s for gang in first} == {0.0}


def test_gangs_that_arrive_at_random_are_so_many_seconds_apart_on_average() -> None:
    moments = [gang.submit_s for gang in draw_gangs(INCLUDED["elastic-mix"].workload, 1, 1)]
    assert moments == sorted(moments)
    assert 30 < moments[-1] / (len(moments) - 1) < 120


def test_the_configurations_people_know_have_their_sizes() -> None:
    shapes = {
        name: [(shape.size_min, shape.cpus_milli // 1000) for shape in INCLUDED[name].workload.shapes]
        for name in INCLUDED
        if name.startswith("lammps")
    }
    assert shapes == {
        "lammps-two": [(2, 2)],
        "lammps-two-three": [(2, 2), (3, 2)],
        "lammps-two-three-four": [(2, 2), (3, 2), (4, 2)],
        "lammps-six": [(2, 2), (3, 2), (4, 2), (5, 2), (6, 2)],
        "lammps-mixed": [(2, 1), (3, 2), (4, 2), (5, 2), (6, 2)],
        "lammps-large": [(4, 2), (8, 2), (16, 2)],
        "lammps-kind": [(2, 2), (1, 2), (3, 2)],
        "lammps-two-three-cpu": [(2, 1), (3, 2)],
    }
