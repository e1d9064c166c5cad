"""What is a person told, and is it true?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.job import JobState, ResizeMode
from swell.model.member_loss import OTHER
from swell.model.plan import Snapshot, Verdict
from swell.model.reason import Code, Evidence, Reason
from swell.model.resources import Resources
from swell.planner import explain, make_plan
from swell.planner.why.explain import WAITING, is_waiting_code
from swell.planner.why.pools import OF_POOLS
from swell.planner.why.recorded import RECORDED, explain_record
from swell.planner.why.wording import ON_CLUSTER

from .world import array, node, queued, running, trains, world


def why(snapshot: Snapshot, job: int) -> Reason:
    """The reason the plan gives."""
    return explain(snapshot, snapshot.jobs_by_id[job], make_plan(snapshot).verdicts[job])


def wants(cpus: float = 1.0, memory_mib: int = 0, gpus: int = 0, tasks: int = 1) -> Evidence:
    return {"wants_tasks": tasks, "wants_cpus": cpus, "wants_memory_mib": memory_mib, "wants_gpus": gpus}


def largest(kind: str, cpus: float, memory_mib: int, gpus: int = 0) -> Evidence:
    prefix = f"largest_{kind}"
    return {f"{prefix}_cpus": cpus, f"{prefix}_memory_mib": memory_mib, f"{prefix}_gpus": gpus}


GIB = 1024


# -- every code ----------------------------------------------------------------------------------------------


def test_every_code_has_words():
    assert WAITING.keys() | RECORDED.keys() | OF_POOLS == set(Code)


def test_only_a_silent_worker_can_be_both_a_present_and_a_recorded_reason():
    assert WAITING.keys() & RECORDED.keys() == {Code.WORKER_UNREACHABLE}


@pytest.mark.parametrize("code", WAITING)
@pytest.mark.parametrize("nodes", [(), (node("a"),), (node("a"), node("b", is_reachable=False))])
def test_every_waiting_code_says_what_is_true_and_what_to_do_whatever_the_world_looks_like(
    code: Code, nodes: tuple[object, ...]
):
    snapshot = world(*nodes, queued(1, gpus=1), array(2))  # type: ignore[arg-type]
    for job in snapshot.jobs:
        reason = explain(snapshot, job, Verdict(code, behind=7))
        assert reason.code is code
        assert reason.message
        assert reason.next
        assert set(reason.to_document()) == {"code", "message", "evidence", "next"}


@pytest.mark.parametrize("code", RECORDED)
def test_every_recorded_code_has_words_even_without_evidence(code: Code):
    reason = explain_record(code, {})
    assert (reason.code, reason.evidence) == (code, {})
    assert reason.message
    assert reason.next


def test_a_code_is_worked_out_anew_only_while_the_job_waits():
    assert is_waiting_code(Code.WORKER_UNREACHABLE, JobState.QUEUED)
    assert not is_waiting_code(Code.WORKER_UNREACHABLE, JobState.RUNNING)
    assert not is_waiting_code(Code.CANCELLED, JobState.CANCELLED)


# -- cannot run here -----------------------------------------------------------------------------------------


def test_too_large_for_this_machine():
    now = world(node("a", cpus=8, memory_gib=16, gpus=4), queued(1, cpus=2, memory_gib=32, gpus=8))
    assert why(now, 1) == Reason(
        Code.CANNOT_RUN_HERE,
        "it wants 2 CPUs, 32 GiB, 8 GPUs, but this machine has 8 CPUs, 16 GiB, 4 GPUs; waiting will not help",
        {
            **wants(2.0, 32 * GIB, 8),
            **largest("free", 8.0, 16 * GIB, 4),
            **largest("node", 8.0, 16 * GIB, 4),
            "nodes": 1,
        },
        "cancel it and submit it again with --gpus 4 --memory 16384MiB or less, or add a node",
    )


def test_the_machine_that_comes_nearest_is_the_one_that_is_named():
    """The one with most GPUs was named to a job that wants none."""
    now = world(node("a", cpus=8, gpus=4), node("b", cpus=64), queued(1, cpus=100))
    reason = why(now, 1)
    assert reason.message == ("it wants 100 CPUs, but the closest node has 64 CPUs; waiting will not help")
    assert reason.next == "cancel it and submit it again with --cpus 64 or less, or add a node"


def test_too_many_tasks_for_all_machines_together():
    """It was told to take what the largest node holds, though gangs may spread."""
    now = world(node("a", gpus=4), node("b", gpus=4), queued(1, gpus=1, tasks=10))
    reason = why(now, 1)
    assert reason.message == (
        "it wants 10 tasks of 1 CPU, 1 GPU, all at once, but only 8 tasks fit on all nodes; waiting will not help"
    )
    assert reason.next == "cancel it and submit it again with --tasks 8 or less, or add a node"


def test_roles_that_do_not_fit_together():
    now = world(node("a", cpus=4), queued(1, cpus=3, extra=(Resources(2000), 2)))
    reason = why(now, 1)
    assert reason.message == (
        "it wants 1 task of 3 CPUs and 2 tasks of 2 CPUs, all at once, "
        "but they do not all fit on this machine; waiting will not help"
    )
    assert reason.next == "cancel it and submit it again with fewer or smaller tasks, or add a node"


def test_an_array_is_told_about_one_task():
    reason = why(world(node("a", cpus=4), array(1, gpus=1)), 1)
    assert reason.message == (
        "it wants 1 CPU, 1 GPU for each task, but this machine has 4 CPUs, 0 GPUs; waiting will not help"
    )
    assert reason.next == "cancel it and submit it again with no --gpus, or add a node"


# -- waiting -------------------------------------------------------------------------------------------------


def test_waiting_for_room_on_this_machine():
    now = world(node("a", cpus=4, memory_gib=8), running(1, on="a", cpus=3, time="10m"), queued(2, cpus=2), now=60.0)
    assert why(now, 2) == Reason(
        Code.WAITING_FOR_ROOM,
        "it wants 2 CPUs; free here is 1 CPU; the rest is used by job 1",
        {**wants(2.0), **largest("free", 1.0, 8 * GIB), "nodes": 1, "held_by": [1], "behind": None},
        "nothing to do; by their time limits, all running jobs will have ended in 540 s",
    )


def test_waiting_for_room_behind_others_on_several_machines():
    holders = [running(n, on="a", cpus=1) for n in range(1, 8)]
    now = world(node("a", cpus=8), node("b", cpus=1), *holders, queued(8, cpus=2, tasks=2), queued(9, cpus=2))
    reason = why(now, 9)
    assert reason.message == (
        "it wants 2 CPUs; the most that is free on one node is 1 CPU; "
        "the rest is used by jobs 1, 2, 3, 4, 5 and 2 more; job 8 is ahead of it"
    )
    assert (reason.evidence["held_by"], reason.evidence["behind"]) == ([1, 2, 3, 4, 5], 8)
    assert reason.next == "nothing to do; it starts when enough resources are free"


def test_the_room_of_a_machine_that_does_not_answer_is_not_called_free():
    now = world(node("a", cpus=2), node("b", cpus=1, is_reachable=False), running(1, on="a"), queued(2, cpus=2))
    assert why(now, 2).message == (
        "it wants 2 CPUs; the most that is free on one node is 1 CPU; the rest is used by job 1"
    )


def test_a_machine_that_offers_less_than_it_holds_has_nothing_free():
    now = world(node("a", cpus=1), running(1, on="a", cpus=2), queued(2))
    assert why(now, 2).message == ("it wants 1 CPU; free here is 0 CPUs; the rest is used by job 1")


def test_who_is_about_to_give_room_back_is_said():
    now = world(node("a", cpus=2), array(1, slots=2, draining=(0, 1)), queued(2, cpus=2, priority=1))
    assert why(now, 2).message == (
        "it wants 2 CPUs; free here is 0 CPUs; the rest is used by job 1; job 1 will free resources when tasks end"
    )


@pytest.mark.parametrize(
    ("mode", "state", "said"),
    [
        (ResizeMode.AT_CHECKPOINT, JobState.RUNNING, "will free resources at the next checkpoint"),
        (ResizeMode.AT_CHECKPOINT, JobState.STOPPING, "will free resources when stopped, which is being done now"),
        (ResizeMode.IMMEDIATE, JobState.RUNNING, "will free resources when stopped, which is being done now"),
        (ResizeMode.IMMEDIATE, JobState.STOPPING, "will free resources when stopped, which is being done now"),
    ],
)
def test_how_a_job_that_was_asked_gives_room_back_is_said(mode, state, said):
    asked = replace(trains(1, on="a", gpus=2, width=2, mode=mode, yielding=0), state=state)
    reason = why(world(node("a", gpus=2), asked, queued(2, gpus=2)), 2)
    assert [part for part in reason.message.split("; ") if "will free" in part] == [f"job 1 {said}"]


def test_an_elastic_job_is_told_about_its_least_width():
    now = world(node("a", gpus=2), running(1, on="a", gpus=1), queued(2, gpus="2..4"))
    assert why(now, 2).message == (
        "it wants at least 1 CPU, 2 GPUs; free here is 63 CPUs, 1 GPU; the rest is used by job 1"
    )


def test_from_when_on_a_job_may_be_made_narrower_is_said():
    """'Nobody can say when: a time limit is missing', although in 87 s job 1 was to be asked."""
    young = trains(1, on="a", gpus="1..4", width=4, mode=ResizeMode.IMMEDIATE, started=967.0, checkpoint_at=None)
    reason = why(world(node("a", gpus=4), young, queued(2, gpus=2), now=1000.0), 2)
    assert (reason.message, reason.next) == (
        (
            "it wants 1 CPU, 2 GPUs; free here is 63 CPUs, 0 GPUs; the rest is used by job 1; "
            "job 1 can shrink, but started only a moment ago"
        ),
        "nothing to do; in 87 s job 1 can be asked to free resources",
    )


def test_whom_a_higher_priority_does_not_help_is_told_so():
    """A job of high priority waited behind plain ones, and nothing said that those are not preempted."""
    plain, safe, equal = running(1, on="a", gpus=1), trains(2, on="a", gpus=1, width=1), running(3, on="a", gpus=1)
    now = world(node("a", gpus=3), plain, safe, replace(equal, priority=9), queued(4, gpus=3, priority=9))
    assert why(now, 4).message == (
        "it wants 1 CPU, 3 GPUs; free here is 61 CPUs, 0 GPUs; the rest is used by jobs 1, 2, 3; job 1 has a lower "
        "priority, but a job is preempted only if it has reported a checkpoint or was submitted with "
        "--resize immediate"
    )


def test_waiting_in_line():
    now = world(node("a", cpus=4, memory_gib=8), running(1, on="a", cpus=2, time="10m"), queued(2, cpus=4), queued(3))
    assert why(now, 3) == Reason(
        Code.WAITING_IN_LINE,
        "it wants 1 CPU, which is free, but job 2 is ahead of it in the queue and would start later if this job "
        "started now",
        {**wants(), **largest("free", 2.0, 8 * GIB), "nodes": 1, "behind": 2},
        "give it a time limit (--time): a job that will end in time can be backfilled",
    )


def test_one_with_a_limit_is_not_told_to_give_one():
    now = world(node("a", cpus=4), running(1, on="a", cpus=2, time="10m"), queued(2, cpus=4), queued(3, time="1h"))
    assert why(now, 3).next == "nothing to do; it starts when its turn comes"


def test_in_line_names_the_one_that_would_be_delayed():
    """Job 4 would delay job 3 and not job 2, which waits for a slot on the other machine."""
    now = world(
        node("a", cpus=1, gpus=1),
        node("b", cpus=4),
        array(1, on="a", gpus=1, slots=1),
        running(9, on="b", cpus=2, time="10m"),
        queued(2, gpus=1, priority=2),
        queued(3, cpus=4, priority=1),
        queued(4, cpus=2, priority=1),
    )
    assert (why(now, 4).code, why(now, 4).evidence["behind"]) == (Code.WAITING_IN_LINE, 3)


def test_no_worker():
    assert why(world(queued(1)), 1) == Reason(
        Code.NO_WORKER,
        "no nodes yet; the worker is probably still starting",
        {"nodes": 0},
        "wait a moment; if this lasts, see worker.log in the state folder",
    )


def test_only_where_no_worker_answers():
    now = world(node("a", cpus=1), node("b", is_reachable=False), node("c", is_reachable=False), queued(1, cpus=2))
    assert why(now, 1) == Reason(
        Code.WORKER_UNREACHABLE,
        "it wants 2 CPUs, which only fits on unreachable nodes: b, c",
        {"unreachable_nodes": ["b", "c"]},
        "restart the worker there; see worker.log",
    )


def test_on_a_cluster_the_words_are_of_nodes():
    """A pool at zero was told to look at worker.log, which no cluster has."""
    empty = world(queued(1))
    assert explain(empty, empty.jobs[0], Verdict(Code.NO_WORKER), words=ON_CLUSTER.waiting) == Reason(
        Code.NO_WORKER,
        "the cluster has no nodes",
        {"nodes": 0},
        "add a node (`kubectl get nodes` lists the nodes); a cluster autoscaler adds one by itself, which takes "
        "some minutes",
    )
    now = world(node("a", cpus=1), node("b", is_reachable=False), node("c", is_reachable=False), queued(1, cpus=2))
    assert explain(now, now.jobs[0], Verdict(Code.WORKER_UNREACHABLE), words=ON_CLUSTER.waiting) == Reason(
        Code.WORKER_UNREACHABLE,
        "it wants 2 CPUs, which only fits on nodes that are not ready: b, c",
        {"unreachable_nodes": ["b", "c"]},
        "check the node (kubectl describe node b), or add a node",
    )
    evidence: Evidence = {"node": "b", "silent_s": 75}
    assert explain_record(Code.WORKER_UNREACHABLE, evidence, words=ON_CLUSTER.recorded) == Reason(
        Code.WORKER_UNREACHABLE,
        "its node b has not been ready for 75 s; its pods may still be running",
        evidence,
        "check the node (kubectl describe node b); if the cluster deletes its pods, the job is queued again",
    )


# -- a quota of the cluster ----------------------------------------------------------------------------------

EXCEEDED = "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
RAISE = (
    "it starts when quota 'small' of its namespace has enough left: see what uses it "
    "(kubectl describe resourcequota small -n NAMESPACE), ask for a larger quota, or request less"
)


def test_what_a_quota_refused_and_what_to_do_about_it():
    now = world(node("a"), queued(1))
    job = replace(now.jobs[0], problem=f'pods "x" is forbidden: {EXCEEDED}', not_before=now.now + 4)
    assert explain(now, job, Verdict(Code.WAITING_TO_RETRY)) == Reason(
        Code.WAITING_TO_RETRY,
        f'it is retried in 4 s; it could not be placed the last time: pods "x" is forbidden: {EXCEEDED}',
        {"in_s": 4.0, "problem": f'pods "x" is forbidden: {EXCEEDED}'},
        RAISE,
    )


@pytest.mark.parametrize("code", [Code.STARTING, Code.TASK_TROUBLE])
def test_what_a_quota_keeps_from_starting_and_what_to_do_about_it(code: Code):
    reason = explain_record(code, {"nodes": "a", "job": 7, "trouble": EXCEEDED})
    assert (reason.message.endswith(f" {EXCEEDED}"), reason.next) == (True, RAISE)


# -- recorded ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "evidence", "message", "following"),
    [
        (
            Code.CANCELLED,
            {"by": "ada"},
            "cancelled by ada",
            "nothing to do; submit it again to run it",
        ),
        (
            Code.CANCELLED,
            {"by": OTHER},
            "cancelled by another scheduler",
            "nothing to do; its pods that are left and wait are another job: swell ps -a",
        ),
        (Code.HELD, {"by": "ada", "job": 5}, "ada put it on hold", "swell release 5"),
        (
            Code.DEPENDENCY_FAILED,
            {"after": 3, "state": "failed"},
            "it was to start after job 3 had succeeded, but that job failed",
            "see why that job did not succeed; then submit this job again, or with --after JOB:end",
        ),
        (
            Code.TIME_LIMIT,
            {"limit_s": 3600.0},
            "it ran longer than its time limit of 3600 s and was stopped",
            "give it more time (--time)",
        ),
        (
            Code.START_FAILED,
            {"rank": 2, "problem": "no such folder: /data"},
            "task 2 could not be started: no such folder: /data",
            "fix that and submit it again",
        ),
        (
            Code.TASK_FAILED,
            {"job": 7, "rank": 3, "exit_code": 137, "failed": 1},
            "task 3 ended with exit code 137 (SIGKILL)",
            "swell logs --rank 3 7",
        ),
        (
            Code.TASK_FAILED,
            {"job": 7, "rank": 3, "exit_code": 127, "failed": 12},
            "12 tasks, first task 3, ended with exit code 127 (the command was not found)",
            "swell logs --rank 3 7",
        ),
        (
            Code.TASK_FAILED,
            {"job": 7, "rank": 0, "exit_code": 1, "failed": 1},
            "task 0 ended with exit code 1",
            "swell logs --rank 0 7",
        ),
        (
            Code.TASK_FAILED,
            {"job": 7, "rank": 1, "exit_code": None, "failed": 1, "problem": "Job has reached its backoff limit"},
            "task 1 failed and left no exit code; Job has reached its backoff limit",
            "swell logs --rank 1 7",
        ),
        (
            Code.STOPPING,
            {"cause": "cancelled by ada", "grace_s": 30.0},
            "it is being stopped (cancelled by ada); its processes have 30 s to end",
            "wait",
        ),
        (
            Code.TASK_TROUBLE,
            {"job": 7, "trouble": "pod train-0 keeps ending: begun again 3 times"},
            "it is running, but not completely: pod train-0 keeps ending: begun again 3 times",
            "see its output (swell logs 7), fix that and submit it again, or wait",
        ),
        (
            Code.WORKER_UNREACHABLE,
            {"node": "b", "silent_s": 75},
            "its node b has not been heard from for 75 s; the job may still be running",
            "restart the worker there; it takes over the running tasks",
        ),
    ],
)
def test_recorded_reasons(code: Code, evidence: Evidence, message: str, following: str):
    assert explain_record(code, evidence) == Reason(code, message, evidence, following)


# -- in the words that it was written in ---------------------------------------------------------------------

AGAIN = "cancel it and submit it again with "


@pytest.mark.parametrize(
    ("what", "snapshot", "following"),
    [
        (
            "one task is too large",
            world(node("a", cpus=8, memory_gib=16, gpus=4), queued(1, cpus=12, memory_gib=32, gpus=8)),
            AGAIN + "resources.requests of nvidia.com/gpu: 4, cpu: 8, memory: 16384Mi or less, or add a node",
        ),
        (
            "there is no GPU",
            world(node("a"), queued(1, gpus=1)),
            AGAIN + "no nvidia.com/gpu, or add a node",
        ),
        (
            "they are too many",
            world(node("a", gpus=4), node("b", gpus=4), queued(1, gpus=1, tasks=10)),
            AGAIN + "8 pods or less, or add a node",
        ),
        (
            "it wants more of a GPU than there is, and more CPUs",
            world(node("a", cpus=8, gpus=1), queued(1, cpus=12, gpu_gib=24)),
            AGAIN
            + "resources.requests of cpu: 8, the annotation swell.dev/gpu-memory: 16384MiB or less, or add a node",
        ),
    ],
)
def test_what_an_object_of_kubernetes_asks_for_is_changed_in_its_manifest(
    what: str, snapshot: Snapshot, following: str
):
    """It came by kubectl, and was told to use options of `swell run`."""
    verdict = make_plan(snapshot).verdicts[1]
    assert explain(snapshot, snapshot.jobs_by_id[1], verdict, "PyTorchJob").next == following, what


@pytest.mark.parametrize(
    ("code", "following"),
    [
        (Code.TIME_LIMIT, "give it more time (the annotation swell.dev/time)"),
        (
            Code.GPU_MEMORY_OVERRUN,
            "reserve more (the annotation swell.dev/gpu-memory: 9000MiB), or let it continue with a warning",
        ),
        (
            Code.OUT_OF_MEMORY,
            "give it more memory (resources.limits.memory), or see what it did: swell logs --rank 3 7",
        ),
    ],
)
def test_so_it_is_when_it_has_ended(code: Code, following: str):
    assert explain_record(code, {"job": 7, "rank": 3, "needs_mib": 9000}, "Pod").next == following
