"""As which objects gangs are created, and what watches of them say. No cluster is needed."""

from __future__ import annotations

from typing import Any

import pytest

from swell.engines.kubernetes.watch.mirror import WatchChange
from swell.errors import Rejected
from swell.experiments.events import EventKind
from swell.experiments.experiment import (
    ClusterKind,
    ContenderWanted,
    ExperimentWorkload,
    GangShape,
    ObjectForm,
    named_contender,
)
from swell.experiments.kubernetes.observe import (
    GangPlan,
    GangsObserved,
    JobSeen,
    RankSeen,
    ended_status,
    read_job,
    read_rank,
)
from swell.experiments.kubernetes.render import GangRendering
from swell.experiments.measure import GangAsked, GangOutcome, measure_gangs

GANG = GangAsked("gang-1", 2, cpus_milli=500, memory_mib=64, gpus=1, duration_s=5.0)
SHAPES = (GangShape(1, 2, 2),)
GROUP = "scheduling.x-k8s.io/pod-group"


def rendered(
    contender: str | ContenderWanted, form: ObjectForm = ObjectForm.JOB, *, template: str = "", real: bool = False
) -> list[dict[str, Any]]:
    wanted = named_contender(contender, ClusterKind.KUBERNETES) if isinstance(contender, str) else contender
    workload = ExperimentWorkload("test", SHAPES, form=form, template=template)
    rendering = GangRendering(workload, wanted, is_simulated=not real, namespace="race")
    return [one.document for one in rendering.objects(GANG)]


# -- objects ---------------------------------------------------------------------------------------------------


def test_a_gang_is_an_indexed_job_of_all_its_ranks() -> None:
    [job] = rendered("default")
    spec, pod = job["spec"], job["spec"]["template"]
    assert (job["kind"], job["metadata"]["name"], job["metadata"]["namespace"]) == ("Job", "gang-1", "race")
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    assert "suspend" not in spec
    assert pod["metadata"]["labels"] == {"swell.dev/experiment-gang": "gang-1"}
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    [container] = pod["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "64Mi", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }


def test_a_gang_of_kueue_is_suspended_until_it_is_admitted() -> None:
    [job] = rendered("kueue")
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "experiment"


def test_a_gang_of_coscheduling_has_a_pod_group_of_its_size() -> None:
    group, job = rendered("coscheduling")
    assert (group["kind"], group["metadata"]["name"], group["spec"]) == ("PodGroup", "gang-1", {"minMember": 2})
    assert job["spec"]["template"]["metadata"]["labels"][GROUP] == "gang-1"
    assert job["spec"]["template"]["spec"]["schedulerName"] == "coscheduling"


def test_fluence_makes_its_groups_itself_from_its_labels() -> None:
    [job] = rendered("fluence")
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert (labels[GROUP], labels["fluence.group-size"]) == ("gang-1", "2")


def test_plain_pods_are_numbered_and_say_to_swell_which_gang_they_are() -> None:
    pods = rendered("swell", ObjectForm.PODS)
    assert [pod["metadata"]["name"] for pod in pods] == ["gang-1-0", "gang-1-1"]
    assert [pod["metadata"]["labels"]["swell.dev/experiment-rank"] for pod in pods] == ["0", "1"]
    assert {pod["metadata"]["labels"]["fluence.group-size"] for pod in pods} == {"2"}


def test_ranks_on_real_nodes_wait_for_each_other_and_find_each_other_by_name() -> None:
    service, job = rendered("default", real=True)
    assert service["spec"]["publishNotReadyAddresses"] is True
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert {one["name"]: one.get("value") for one in container["env"]} == {
        "GANG": "gang-1",
        "SIZE": "2",
        "DURATION": "5",
        "RANK": None,
    }
    assert job["spec"]["template"]["spec"]["subdomain"] == "gang-1"


TEMPLATE = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: "${name}"}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template: {spec: {containers: [{name: main, image: lammps, command: [mpirun, "$HOME"]}]}}
    Worker:
      replicas: ${workers}
      template:
        metadata: {labels: {app: lammps}}
        spec: {containers: [{name: main, image: lammps, resources: {limits: {cpu: "${cpus}"}}}]}
"""


def test_a_template_is_filled_in_and_all_its_pods_are_marked() -> None:
    [job] = rendered(ContenderWanted("mine", "my-scheduler", (("team", "${name}"),)), template=TEMPLATE)
    launcher, worker = (job["spec"]["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
    marks = {"team": "gang-1", "swell.dev/experiment-gang": "gang-1"}
    assert (job["metadata"]["name"], job["metadata"]["namespace"], worker["replicas"]) == ("gang-1", "race", 1)
    assert launcher["template"]["metadata"]["labels"] == marks
    assert worker["template"]["metadata"]["labels"] == {"app": "lammps", **marks}
    assert {one["template"]["spec"]["schedulerName"] for one in (launcher, worker)} == {"my-scheduler"}
    assert launcher["template"]["spec"]["containers"][0]["command"] == ["mpirun", "$HOME"]
    assert worker["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "500m"


@pytest.mark.parametrize(
    ("template", "contender", "problem"),
    [
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}", "default", "workload.template has no pods"),
        ("- 1", "default", "must hold Kubernetes objects"),
        (TEMPLATE, "kueue", "kueue is measured with Jobs, but workload.template has a MPIJob"),
    ],
)
def test_a_template_that_is_no_gang_is_refused(template: str, contender: str, problem: str) -> None:
    with pytest.raises(Rejected, match=problem):
        rendered(contender, template=template)


# -- what is seen ----------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pod(rank: int, *, node: str = "", phase: str = "Pending", uid: str = "", why: str = "") -> RankSeen:
    document = {
        "metadata": {
            "name": f"gang-1-{rank}-x",
            "uid": uid or f"u{rank}",
            "creationTimestamp": "1970-01-01T00:16:41Z",  # a second after the run began
            "labels": {"swell.dev/experiment-gang": "gang-1", "batch.kubernetes.io/job-completion-index": str(rank)},
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }
    if why:
        document["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": why}]  # type: ignore[index]
    return read_rank(document)


class Watched:
    """A run of one gang of two, whose watch is played."""

    def __init__(self, *, has_jobs: bool = True) -> None:
        self.clock = Clock()
        self.seen = GangsObserved((GANG,), 1000.0, self.clock, has_jobs=has_jobs)
        self._known: dict[int, RankSeen] = {}
        self.seen.submitted("gang-1", 0.0)

    def __call__(self, at: float, rank: int, **state: Any) -> None:
        self.clock.now = at
        after = pod(rank, **state)
        self.seen.pods_changed([WatchChange(("race", after.name), self._known.get(rank), after)])
        self._known[rank] = after

    def gone(self, at: float, rank: int) -> None:
        self.clock.now = at
        before = self._known.pop(rank)
        self.seen.pods_changed([WatchChange(("race", before.name), before, None)])

    def kinds(self) -> list[tuple[float, str, int | None, bool]]:
        return [(one.at, str(one.kind), one.rank, one.is_late) for one in self.seen.events()]

    def times(self, watched_s: float) -> Any:
        [found] = measure_gangs((GANG,), self.seen.events(), watched_s)
        return found


def test_each_stage_is_told_when_it_is_heard_of_and_what_was_skipped_is_late() -> None:
    watched = Watched()
    watched(1.0, 0)
    watched(2.0, 0, node="a")
    watched(3.0, 0, node="a", phase="Running")
    watched(4.0, 1, node="b", phase="Running")
    assert watched.kinds() == [
        (0.0, "submitted", None, False),
        (1.0, "created", 0, False),
        (2.0, "bound", 0, False),
        (3.0, "running", 0, False),
        (4.0, "created", 1, True),
        (4.0, "bound", 1, True),
        (4.0, "running", 1, False),
    ]
    assert [one.stamp for one in watched.seen.events() if one.kind is EventKind.CREATED] == [1.0, 1.0]


def test_a_simulated_gang_ends_when_it_has_been_whole_for_its_duration() -> None:
    watched = Watched()
    watched(1.0, 0, node="a", phase="Running")
    watched.clock.now = 60.0
    assert watched.seen.due() == ()
    watched(61.0, 1, node="b", phase="Running")
    watched.clock.now = 65.9
    assert watched.seen.due() == ()
    watched.clock.now = 66.0
    assert sorted(watched.seen.due()) == ["gang-1-0-x", "gang-1-1-x"]
    watched(66.1, 0, node="a", phase="Succeeded")
    assert (watched.seen.due(), watched.seen.left) == (("gang-1-1-x",), 1)
    watched(66.2, 1, node="b", phase="Succeeded")
    assert watched.seen.left == 0
    assert (watched.times(70.0).outcome, watched.times(70.0).run_s) == (GangOutcome.DONE, pytest.approx(5.2))


def test_a_gang_that_loses_a_rank_waits_until_it_is_whole_again() -> None:
    watched = Watched()
    watched(1.0, 0, node="a", phase="Running")
    watched(1.0, 1, node="b", phase="Running")
    watched.gone(4.0, 1)
    watched.clock.now = 30.0
    assert watched.seen.due() == ()
    watched(31.0, 1, node="c", phase="Running", uid="another")
    watched.clock.now = 36.0
    assert len(watched.seen.due()) == 2
    assert (4.0, "released", 1, False) in watched.kinds()
    assert watched.times(40.0).restarts == 1


def test_a_rank_that_begins_again_and_again_is_no_progress() -> None:
    watched = Watched()
    watched(1.0, 0, node="a")
    for number in range(5):
        watched.gone(10.0 + number, 0)
        watched(10.5 + number, 0, node="b", uid=f"again-{number}")
    assert (watched.clock.now, watched.seen.is_stuck(13.5), watched.seen.is_stuck(13.4)) == (14.5, False, True)


def test_a_gang_that_runs_for_longer_than_a_stuck_run_is_waited_for() -> None:
    """A gang of five minutes was given up after two, because meanwhile nothing happened for the first time."""
    watched = Watched()
    watched(1.0, 0, node="a", phase="Running")
    watched.clock.now = 200.0
    assert watched.seen.is_stuck(120.0)
    watched(201.0, 1, node="b", phase="Running")
    watched.clock.now = 501.0
    assert not watched.seen.is_stuck(120.0)


def test_a_pod_that_was_replaced_in_a_gap_of_the_watch_was_released() -> None:
    watched = Watched()
    watched(1.0, 0, node="a", phase="Running")
    watched(5.0, 0, node="b", uid="another")
    assert watched.kinds()[-3:] == [(5.0, "released", 0, False), (5.0, "created", 0, True), (5.0, "bound", 0, False)]


def test_a_job_that_somebody_deletes_half_way_is_over_and_censored() -> None:
    watched = Watched()
    watched(1.0, 0, node="a", phase="Running")
    watched.clock.now = 2.0
    job = JobSeen("gang-1", end=None)
    watched.seen.jobs_changed([WatchChange(("race", "gang-1"), job, None)])
    watched.gone(2.5, 0)
    assert watched.seen.left == 0
    assert watched.times(9.0).outcome is GangOutcome.DELETED


def test_a_rank_that_fails_is_begun_again_by_its_job_until_that_gives_up() -> None:
    watched = Watched()
    watched(1.0, 0, node="a", phase="Failed")
    watched(1.0, 1, node="a", phase="Failed")
    assert watched.seen.left == 1
    failed = {"metadata": {"labels": {"swell.dev/experiment-gang": "gang-1"}}, "status": {"conditions": [FAILED]}}
    watched.seen.jobs_changed([WatchChange(("race", "gang-1"), None, read_job(failed))])
    assert watched.seen.left == 0
    assert watched.times(9.0).outcome is GangOutcome.FAILED


def test_ranks_of_a_job_that_has_failed_as_a_whole_have_failed_and_hold_no_node_any_more() -> None:
    """They were never told to have ended: the gang was unfinished, and held its nodes until the end of the run."""
    watched = Watched()
    watched(1.0, 0, node="a", phase="Running")
    watched(1.0, 1, node="b", phase="Running")
    watched.clock.now = 5.0
    failed = {"metadata": {"labels": {"swell.dev/experiment-gang": "gang-1"}}, "status": {"conditions": [FAILED]}}
    watched.seen.jobs_changed([WatchChange(("race", "gang-1"), None, read_job(failed))])
    watched.gone(5.5, 0)
    watched.gone(5.5, 1)
    assert watched.kinds()[-2:] == [(5.0, "failed", 0, False), (5.0, "failed", 1, False)]
    assert (watched.seen.left, watched.times(9.0).outcome) == (0, GangOutcome.FAILED)
    watched.clock.now = 60.0
    assert watched.seen.is_stuck(30.0)


FAILED = {"type": "Failed", "status": "True"}


def test_ranks_that_serve_a_leader_are_over_with_it() -> None:
    watched = Watched()
    watched(1.0, 0, node="a", phase="Running")
    watched(1.0, 1, node="b", phase="Running")
    watched(5.0, 0, node="a", phase="Succeeded")
    met = {"type": "SuccessCriteriaMet", "status": "True"}
    done = {"metadata": {"labels": {"swell.dev/experiment-gang": "gang-1"}}, "status": {"conditions": [met]}}
    watched.seen.jobs_changed([WatchChange(("race", "gang-1"), None, read_job(done))])
    watched.gone(5.5, 1)
    assert watched.seen.left == 0
    assert watched.kinds()[-1] == (5.0, "succeeded", 1, False)
    assert watched.times(9.0).outcome is GangOutcome.DONE


def test_plain_pods_that_have_failed_are_over() -> None:
    watched = Watched(has_jobs=False)
    watched(1.0, 0, node="a", phase="Failed")
    watched(2.0, 1, node="a", phase="Succeeded")
    assert watched.seen.left == 0


def test_what_waits_says_why_in_the_words_of_kubernetes() -> None:
    watched = Watched()
    watched(1.0, 0, why="0/8 nodes are available: 8 Insufficient cpu.")
    assert watched.seen.reasons() == {"gang-1": "0/8 nodes are available: 8 Insufficient cpu."}
    watched(2.0, 0, node="a")
    assert watched.seen.reasons() == {}


def test_what_a_scheduler_says_that_it_planned_is_moved_to_our_clock() -> None:
    watched = Watched()
    watched(1.5, 0)  # its stamp says 1: the cluster's clock is half a second behind
    watched.seen.planned({"gang-1": GangPlan(1002.0, ("a", "b"))})
    planned = [one for one in watched.seen.events() if one.kind is EventKind.PLANNED]
    assert [(one.at, one.stamp, one.node) for one in planned] == [(2.5, 2.0, "a, b")]


def test_the_end_of_a_simulated_rank_is_one_that_kubernetes_would_report() -> None:
    status = ended_status("main", "2026-01-01T00:00:00Z")["status"]
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
