"""Experiments on a real control plane with simulated nodes: two contenders, a minute, and all that goes wrong."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cluster.api import Refused
from cluster.cluster import Cluster
from cluster.starting import module_cluster
from swell.cli.root import swell
from swell.errors import Conflict, Denied, Rejected
from swell.experiments.command import run as run_experiment
from swell.experiments.experiment import Experiment, parse_experiment
from swell.experiments.figures import MeasuredRun, RunEnd
from swell.experiments.kubernetes import cluster as measured_cluster
from swell.experiments.measure import GangOutcome
from swell.experiments.race import Lap
from swell.experiments.results import ResultsFolder
from swell.experiments.trace import trace

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

cluster = module_cluster(kwok=4, kwok_cpus=2)
NAMESPACES = "/api/v1/namespaces"
PODS = "/api/v1/namespaces/{}/pods"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"


def experiment(cluster: Cluster, workload: str, contenders: str, **more: Any) -> Experiment:
    # A node that has become ready keeps its taint for a moment, and is no node for an experiment until then.
    cluster.api.until("/api/v1/nodes", lambda nodes: not any(one["spec"].get("taints") for one in nodes.values()))
    where = f"cluster: {{kubernetes: {{kubeconfig: {cluster.kubeconfig}}}}}"
    text = f"workload: {workload}\n{where}\ncontenders: {contenders}\nstuckAfter: 10s\n"
    return replace(parse_experiment(text, Path()), **more)


def measured(asked: Experiment, path: Path, progress: Callable[..., None] = lambda *_: None) -> list[MeasuredRun]:
    run_experiment(asked, path, progress)
    return list(ResultsFolder.existing(path).measured())


def names(cluster: Cluster, path: str = NAMESPACES) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.api.get(path)["items"]}


def servers() -> set[int]:
    """Processes of contenders of ours."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(b"/tmp/swell-experiment-") for word in words):
            found.add(int(path.parent.name))
    return found


def ends(runs: list[MeasuredRun]) -> dict[str, RunEnd]:
    return {run.facts.contender: run.facts.end for run in runs}


def test_who_knows_gangs_completes_and_who_does_not_clogs_as_in_the_simulator(cluster: Cluster, tmp_path: Path) -> None:
    before = names(cluster)
    asked = experiment(cluster, "tiny", "[default, swell]")
    runs = measured(asked, tmp_path / "real")
    simulated = parse_experiment(
        "workload: tiny\ncluster: {simulator: {nodes: 4, cpus: 2}}\ncontenders: [default, swell]\n", Path()
    )
    again = measured(simulated, tmp_path / "simulated")

    assert ends(runs) == ends(again) == {"default": RunEnd.STUCK, "swell": RunEnd.COMPLETE}
    ours = next(run for run in runs if run.facts.contender == "swell")
    theirs = next(run for run in runs if run.facts.contender == "default")
    assert (ours.figures.done, ours.figures.unfinished, ours.figures.clogged) == (12, 0, pytest.approx(0, abs=0.1))
    assert theirs.figures.done < 12
    assert theirs.figures.clogged > 0.5
    assert "hold nodes without being whole" in theirs.facts.detail
    assert "Insufficient cpu" in theirs.facts.detail
    assert all(2.0 <= (one.run_s or 0) < 4.0 for one in ours.times), [one.run_s for one in ours.times]
    assert ours.facts.cpu_s is not None
    assert ours.facts.cpu_s > 0
    assert (ours.facts.memory_mib or 0) > 20
    assert theirs.facts.cpu_s is None

    text = trace(tmp_path / "real", "gang-3", "swell", 1)
    assert "planned on kwok-" in text
    assert "(as asked, as planned); done" in text
    kept = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "real/cluster").iterdir()}
    assert [node["name"] for node in kept["nodes"]] == [f"kwok-{number}" for number in range(4)]
    assert set(kept) == {"nodes", "scheduler-pods", "topology"}
    versions = json.loads((tmp_path / "real/versions.json").read_text())
    assert versions["kubernetes"].startswith("v1.")
    assert names(cluster) == before
    assert servers() == set()


def test_an_interrupted_run_leaves_nothing_and_is_measured_again(cluster: Cluster, tmp_path: Path) -> None:
    before = names(cluster)
    asked = experiment(cluster, "tiny", "[swell, fifo]")
    seen: list[str] = []

    def interrupt(lap: Lap, done: int, _: int) -> None:
        seen.append(lap.contender.name)
        if lap.number == 2 and done >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(asked, tmp_path, interrupt)
    assert names(cluster) == before
    assert servers() == set()
    first = seen[0]

    again: list[str] = []
    runs = measured(asked, tmp_path, lambda lap, *_: again.append(lap.contender.name))
    assert first not in again
    assert ends(runs) == {"swell": RunEnd.COMPLETE, "fifo": RunEnd.COMPLETE}


LONG = "{gangs: [{count: 2, size: 2, duration: 3s}]}"


def test_what_a_crash_left_is_taken_away_when_the_experiment_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    asked = experiment(cluster, LONG, "[default]")
    namespace = measured_cluster.ExperimentNamespace(_client(cluster), asked.cluster.namespace, tmp_path)
    namespace.make()
    left = {"metadata": {"name": "left"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    cluster.api.create(PODS.format(asked.cluster.namespace), left)

    with pytest.raises(Conflict, match=r"belongs to the experiment in .*; wait until that is over"):
        measured(asked, tmp_path / "another")
    assert not (tmp_path / "another").exists()
    assert ends(measured(asked, tmp_path)) == {"default": RunEnd.COMPLETE}
    assert asked.cluster.namespace not in names(cluster)


def _client(cluster: Cluster) -> Any:
    from swell.engines.kubernetes import ApiClient, find_access

    return ApiClient(find_access(cluster.kubeconfig))


def test_a_gang_that_somebody_deletes_half_way_is_counted_and_the_run_ends(cluster: Cluster, tmp_path: Path) -> None:
    asked = experiment(cluster, LONG, "[swell]")
    path = JOBS.format(asked.cluster.namespace)
    deleted: list[str] = []

    def delete_one(lap: Lap, done: int, _: int) -> None:
        if not deleted and any(item.get("status", {}).get("ready") for item in jobs_of(cluster, path)):
            deleted.append("gang-1")
            cluster.api.request("DELETE", f"{path}/gang-1", {"propagationPolicy": "Background"})

    [run] = measured(asked, tmp_path, delete_one)
    assert {one.gang: one.outcome for one in run.times} == {"gang-0": GangOutcome.DONE, "gang-1": GangOutcome.DELETED}
    assert (run.figures.makespan_s, run.figures.deleted) == (None, 1)


def jobs_of(cluster: Cluster, path: str) -> list[Any]:
    try:
        return [item for item in cluster.api.get(path)["items"] if item["metadata"]["name"].startswith("gang")]
    except Refused:
        return []


def test_a_gang_that_runs_for_longer_than_stuck_after_is_measured_to_its_end(cluster: Cluster, tmp_path: Path) -> None:
    asked = experiment(cluster, "{gangs: [{count: 1, size: 2, duration: 15s}]}", "[default]")
    [run] = measured(asked, tmp_path)
    assert (asked.stuck_s, run.facts.end, run.figures.done) == (10.0, RunEnd.COMPLETE, 1)
    assert (run.times[0].run_s or 0) >= 15.0


def test_a_contender_that_dies_while_it_is_measured_is_recorded_and_the_next_one_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    asked = experiment(cluster, LONG, "[swell, default]")

    def kill(lap: Lap, *_: int) -> None:
        if lap.contender.name == "swell":
            for pid in servers():
                os.kill(pid, signal.SIGKILL)

    runs = measured(asked, tmp_path, kill)
    assert ends(runs) == {"swell": RunEnd.BROKEN, "default": RunEnd.COMPLETE}
    broken = next(run for run in runs if run.facts.contender == "swell")
    assert "swell ended" in broken.facts.detail
    kept = {path.name for path in (tmp_path / "runs/1-swell").iterdir()}
    assert kept == {"contender.json", "contender.log", "events.jsonl", "run.json"}
    assert json.loads((tmp_path / "runs/1-swell/contender.json").read_text())["configuration"]["policy"] == "swell"
    assert {path.name for path in (tmp_path / "runs/1-default").iterdir()} == {"events.jsonl", "run.json"}


def test_an_installed_scheduler_is_used_by_its_name_and_one_that_is_not_there_is_recorded(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swell.experiments.kubernetes import measured as module

    monkeypatch.setattr(module, "WARM_S_MAX", 5.0)
    named = "[{name: installed, schedulerName: default-scheduler, labels: {team: a}}, {schedulerName: nobody}]"
    runs = measured(experiment(cluster, LONG, named), tmp_path)
    assert ends(runs) == {"installed": RunEnd.COMPLETE, "nobody": RunEnd.BROKEN}
    broken = next(run for run in runs if run.facts.contender == "nobody")
    assert "did not run a single pod within 5 s" in broken.facts.detail


# -- what is refused -------------------------------------------------------------------------------------------


def test_a_cluster_that_is_not_clean_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    resources = {"requests": {"cpu": "1"}}
    pod = {"metadata": {"name": "busy"}, "spec": {"containers": [{"name": "a", "image": "a", "resources": resources}]}}
    cluster.api.create(PODS.format("default"), pod)
    try:
        refuse(cluster, tmp_path, "tiny", "[default]", Conflict, r"not clean: .* taken by 1 pod .*\(default/busy\)")
    finally:
        cluster.api.delete(f"{PODS.format('default')}/busy")
    until = time.monotonic() + 30
    while "busy" in names(cluster, PODS.format("default")):
        assert time.monotonic() < until


@pytest.mark.parametrize(
    ("workload", "contenders", "error", "problem"),
    [
        ("tiny", "[coscheduling]", Rejected, "--programs names no folder: build it from its pinned module"),
        ("tiny", "[fluence]", Rejected, "contender fluence is not installed"),
        ("{gangs: [{size: 9}]}", "[default]", Rejected, "gang-0 has 9 ranks of 1 CPU.*hold 8"),
        ("{gangs: [{size: 2, cpus: 3}]}", "[default]", Rejected, "hold 0"),
    ],
)
def test_what_cannot_be_measured_here_is_refused(
    cluster: Cluster, tmp_path: Path, workload: str, contenders: str, error: type[Exception], problem: str
) -> None:
    refuse(cluster, tmp_path, workload, contenders, error, problem)


def test_who_may_not_is_refused_with_what_they_may_not(cluster: Cluster, tmp_path: Path) -> None:
    document = json.loads(cluster.kubeconfig.read_text())
    document["users"][0]["user"]["as"] = "eva"
    own = tmp_path / "kubeconfig"
    own.write_text(json.dumps(document))
    rule = {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}
    meta = {"name": "eva-lists"}
    api = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
    cluster.api.create(f"{api}s", {"metadata": meta, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "eva-lists"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eva"}
    cluster.api.create(f"{api}bindings", {"metadata": meta, "roleRef": role, "subjects": [subject]})
    asked = experiment(cluster, "tiny", "[default]")
    asked = replace(asked, cluster=replace(asked.cluster, kubeconfig=str(own)))
    with pytest.raises(Denied, match="may not get namespaces, create namespaces, delete namespaces, create pods"):
        run_experiment(asked, tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out").exists()


def test_a_namespace_that_is_somebody_elses_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    asked = experiment(cluster, "tiny", "[default]")
    asked = replace(asked, cluster=replace(asked.cluster, namespace="default"))
    with pytest.raises(Conflict, match="'default' exists and was not made by an experiment"):
        run_experiment(asked, tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out").exists()


def test_a_context_that_is_not_there_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    asked = experiment(cluster, "tiny", "[default]")
    asked = replace(asked, cluster=replace(asked.cluster, context="swell-test"))
    with pytest.raises(Rejected, match="there is no context 'swell-test'"):
        run_experiment(asked, tmp_path / "out", lambda *_: None)


def test_the_command_runs_on_a_cluster_when_it_is_told_to(cluster: Cluster, tmp_path: Path) -> None:
    words = ["experiment", "run", "--config-name", "tiny", "--iters", "3", "--kubeconfig", str(cluster.kubeconfig)]
    words += ["--contender", "swell", "--outdir", str(tmp_path / "out")]
    refused = CliRunner().invoke(swell, words)
    assert (refused.exit_code, "add -y to run without being asked" in refused.output) == (2, True)
    done = CliRunner().invoke(swell, [*words, "-y"])
    assert done.exit_code == 0, done.output
    assert "swell" in done.output
    assert (tmp_path / "out/report/index.html").is_file()


def refuse(
    cluster: Cluster, tmp_path: Path, workload: str, contenders: str, error: type[Exception], problem: str
) -> None:
    before = names(cluster)
    with pytest.raises(error, match=problem):
        run_experiment(experiment(cluster, workload, contenders), tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out").exists()
    assert names(cluster) == before
