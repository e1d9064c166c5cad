"""What a Kubeflow PyTorchJob becomes."""

from __future__ import annotations

import pytest

from swell.model.job import Dimension, ExitAction, ExitRule, JobSpec, Role, exit_action
from swell.model.resources import Resources

from .kubernetes import HERE, LEAVES_GPUS, container, gpus, pytorchjob, read, refusal, replicas, template, width


def test_master_and_workers_are_one_gang_and_the_master_comes_first():
    master = container(name="pytorch", command=["lead"], env=[{"name": "A", "value": "m"}], **gpus(1))
    worker = container(name="pytorch", command=["follow"], resources={"requests": {"cpu": 2, "nvidia.com/gpu": 2}})
    document = pytorchjob(
        replicas(1, master),
        replicas("3", worker),
        runPolicy={"backoffLimit": "2", "activeDeadlineSeconds": 60, "cleanPodPolicy": "None"},
    )
    assert read(document) == JobSpec(
        kind="PyTorchJob",
        notes=(f"{HERE}: image", LEAVES_GPUS.format(2)),
        name="llm",
        roles=(
            Role("master", ("lead",), Resources(1000, 0, 1), 1, (("A", "m"),)),
            Role("worker", ("follow",), Resources(2000, 0, 2), 3),
        ),
        dimension=Dimension.TASKS,
        width_min=1,
        width_max=1,
        array=None,
        priority=0,
        time_limit_s=60.0,
        grace_s=30.0,
        workdir="/home/ann",
        env=(),
        umask=0o027,
        retries=2,
    )


def test_workers_may_come_without_a_master_and_a_replica_count_of_its_own():
    spec = read(pytorchjob(worker=replicas(3)))
    assert ([(role.name, role.count) for role in spec.roles], width(spec)) == ([("worker", 3)], ("tasks", 3, 3))
    assert read(pytorchjob(worker=replicas())).tasks_total == 1


def test_workers_of_which_there_are_none_are_left_out():
    assert read(pytorchjob(replicas(1), replicas(0))) == read(pytorchjob(replicas(1)))


# -- GPUs ----------------------------------------------------------------------------------------------------------


def test_a_range_on_the_master_alone_is_the_jobs_width():
    spec = read(pytorchjob(replicas(1, container(**gpus(2, 4)))))
    assert (width(spec), spec.roles[0].resources.gpus) == (("gpus", 2, 4), 2)


def test_a_master_alone_with_a_number_of_gpus_is_as_wide_as_that():
    assert width(read(pytorchjob(replicas(1, container(**gpus(2, 2)))))) == ("gpus", 2, 2)


@pytest.mark.parametrize(("master", "counts"), [(True, [1, 2]), (False, [2])])
def test_tasks_with_the_same_range_are_widened_in_step(master, counts):
    alike = container(**gpus(1, 4))
    spec = read(pytorchjob(replicas(1, alike) if master else None, replicas(2, alike)))
    assert (width(spec), [role.count for role in spec.roles]) == (("gpus", 1, 4), counts)
    assert {role.resources.gpus for role in spec.roles} == {1}


def test_a_master_without_gpus_stays_without_when_its_workers_are_widened():
    spec = read(pytorchjob(replicas(1), replicas(2, container(**gpus(1, 4)))))
    assert (width(spec), [role.resources.gpus for role in spec.roles]) == (("gpus", 1, 4), [0, 1])


@pytest.mark.parametrize(("other", "shown"), [(gpus(1, 2), "1..2"), (gpus(1), "1"), (gpus(4, 4), "4")])
def test_different_ranges_in_one_job_are_refused_with_both(other, shown):
    spec = "spec.pytorchReplicaSpecs"
    assert refusal(pytorchjob(replicas(1, container(**gpus(1, 4))), replicas(2, container(**other)))) == (
        f"{spec}.Master.template.spec.containers[0] asks for 1..4 GPUs and {spec}.Worker.template.spec.containers[0] "
        f"for {shown}: the tasks of a job are resized together; give them the same range"
    )


def test_annotations_give_the_range_of_every_pod_that_has_gpus():
    noted = {"request": "1", "limit": "3"}
    one = container(**gpus(1))
    assert width(read(pytorchjob(replicas(1), annotations=noted))) == ("gpus", 1, 3)
    assert width(read(pytorchjob(replicas(1, one), replicas(2, one), annotations=noted))) == ("gpus", 1, 3)
    spec = read(pytorchjob(replicas(1), replicas(2, one), annotations=noted))
    assert (width(spec), [role.resources.gpus for role in spec.roles]) == (("gpus", 1, 3), [0, 1])


def test_annotations_that_contradict_the_containers_are_refused_with_both():
    said = refusal(pytorchjob(replicas(1, container(**gpus(2, 4))), annotations={"request": "1", "limit": "3"}))
    assert said.startswith(
        "metadata.annotations ask for 1..3 GPUs (request, limit), but spec.pytorchReplicaSpecs.Maste"
    )
    assert said.endswith(".containers for 2..4; make them the same, or leave the annotations out")


def test_annotated_replicas_are_all_pods():
    assert read(pytorchjob(replicas(1), replicas(2), annotations={"replicas": "3"})).tasks_total == 3
    said = refusal(pytorchjob(replicas(1), replicas(2), annotations={"replicas": "1"}))
    assert said.startswith("metadata.annotations: replicas is 1, but the manifest has 3 pods; ")


# -- elastic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "policy", "found"),
    [
        (2, {"minReplicas": 1, "maxReplicas": 4}, (1, 4)),
        (None, {"minReplicas": "2", "maxReplicas": "4"}, (2, 4)),
        (2, {"maxReplicas": 4}, (2, 4)),
        (3, {"minReplicas": 1}, (1, 3)),
        (3, {"rdzvBackend": "c10d", "maxRestarts": 3}, (3, 3)),
    ],
)
def test_an_elastic_policy_makes_the_number_of_workers_the_width(count, policy, found):
    spec = read(pytorchjob(worker=replicas(count, container(**gpus(1))), elasticPolicy=policy))
    assert (width(spec), spec.roles[0].count, spec.roles[0].resources.gpus) == (("tasks", *found), found[0], 1)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            pytorchjob(replicas(1), replicas(2), elasticPolicy={"minReplicas": 1}),
            "spec.elasticPolicy with a Master: the number of Workers cannot change beside a task of another kind; ",
        ),
        (
            pytorchjob(worker=replicas(), elasticPolicy={"minReplicas": 4, "maxReplicas": 2}),
            "spec.elasticPolicy: minReplicas 4 is above maxReplicas 2; the minimum is the least",
        ),
        (
            pytorchjob(worker=replicas(5), elasticPolicy={"minReplicas": 1, "maxReplicas": 2}),
            "spec.pytorchReplicaSpecs.Worker.replicas is 5, but spec.elasticPolicy allows 1..2; make them agree",
        ),
        (
            pytorchjob(worker=replicas(1, container(**gpus(1, 2))), elasticPolicy={"maxReplicas": 2}),
            "spec.elasticPolicy with 1..2 GPUs in each Worker: a job is elastic in one dimension; give a fixed number",
        ),
        (
            pytorchjob(worker=replicas(), elasticPolicy={"minReplicas": 0}),
            "spec.elasticPolicy.minReplicas is 0; it must be from 1 to 100000",
        ),
        (
            pytorchjob(worker=replicas(), elasticPolicy={"minReplica": 1}),
            "spec.elasticPolicy has no field 'minReplica'; did you mean 'minReplicas'? (used here: minReplicas, maxRe",
        ),
        (
            pytorchjob(worker=replicas(), elasticPolicy=[]),
            "spec.elasticPolicy must be a mapping of names to values, but is a list: []",
        ),
    ],
)
def test_an_elastic_policy_that_cannot_be_kept_is_refused(document, said):
    assert refusal(document).startswith(said)


# -- processes of a node -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nproc", [None, "auto", 1, "1"])
def test_one_process_of_a_node_needs_no_variable(nproc):
    assert read(pytorchjob(replicas(1), nprocPerNode=nproc)).roles[0].env == ()


@pytest.mark.parametrize("spec", [{"nprocPerNode": "4"}, {"nprocPerNode": 4, "elasticPolicy": {"nProcPerNode": 9}}])
def test_more_processes_of_a_node_are_told_in_variables(spec):
    variables = (("NPROC_PER_NODE", "4"), ("PET_NPROC_PER_NODE", "4"))
    assert read(pytorchjob(worker=replicas(), **spec)).roles[0].env == variables


def test_the_elastic_policys_old_field_counts_when_there_is_no_other():
    spec = read(pytorchjob(worker=replicas(), elasticPolicy={"nProcPerNode": 2}))
    assert dict(spec.roles[0].env)["NPROC_PER_NODE"] == "2"


def test_a_container_that_sets_the_variable_itself_keeps_its_own():
    own = container(env=[{"name": "NPROC_PER_NODE", "value": "7"}])
    spec = read(pytorchjob(replicas(1, own), replicas(1), nprocPerNode=2))
    assert [dict(role.env)["NPROC_PER_NODE"] for role in spec.roles] == ["7", "2"]


@pytest.mark.parametrize(
    ("nproc", "said"),
    [
        (0, "is 0; it must be from 1 to 100000"),
        ("two", "must be a whole number from 1 to 100000, but is 'two'"),
        (True, "must be a whole number from 1 to 100000, but is true/false: True"),
        ([2], "must be a whole number from 1 to 100000, but is a list: [2]"),
    ],
)
def test_another_number_of_processes_is_refused(nproc, said):
    assert refusal(pytorchjob(replicas(1), nprocPerNode=nproc)) == f"spec.nprocPerNode {said}"


@pytest.mark.parametrize("counted", ["gpu", "cpu"])
def test_torchrun_counts_gpus_or_cpus_where_it_runs(counted):
    spec = read(pytorchjob(replicas(1), nprocPerNode=counted))
    assert spec.roles[0].env == (("PET_NPROC_PER_NODE", counted),)


def test_replicas_that_go_by_exit_code_are_tried_again_after_signals_only():
    """As with the training operator: 1 to 127 is for good, 137 is not."""
    spec = read(pytorchjob(replicas(1), {**replicas(2), "restartPolicy": "ExitCode"}))
    assert spec.exit_rules == (ExitRule(ExitAction.FAIL, tuple(range(1, 128)), ranks=(1, 2)),)
    found = [exit_action(spec.exit_rules, code, rank) for code, rank in ((1, 0), (1, 1), (127, 2), (137, 2), (None, 1))]
    assert found == [None, ExitAction.FAIL, ExitAction.FAIL, None, None]


# -- the job as a whole --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "retries"), [("OnFailure", 6), ("Always", 6), ("ExitCode", 6), ("Never", 0), (None, 6)]
)
def test_it_is_tried_again_six_times_unless_it_says_never(policy, retries):
    assert read(pytorchjob(replicas(1, restartPolicy=policy))).retries == retries
    inner = {"replicas": 1, "template": template(restartPolicy=policy)}
    assert read(pytorchjob(inner)).retries == retries


def test_a_replicas_own_restart_policy_counts_before_its_templates():
    inner = {"replicas": 1, "restartPolicy": "Never", "template": template(restartPolicy="Always")}
    assert read(pytorchjob(inner)).retries == 0


@pytest.mark.parametrize(("limit", "retries"), [(0, 0), ("4", 4), (5000, 1000)])
def test_a_backoff_limit_counts_whatever_the_restart_policies_say(limit, retries):
    document = pytorchjob(
        replicas(1, restartPolicy="Never"), replicas(1, restartPolicy="Always"), runPolicy={"backoffLimit": limit}
    )
    assert read(document).retries == retries


def test_tasks_that_would_start_again_alone_are_refused():
    assert refusal(pytorchjob(replicas(1, restartPolicy="Never"), replicas(2))) == (
        "spec.pytorchReplicaSpecs.Master.restartPolicy is Never and spec.pytorchReplicaSpecs.Worker.restartPolicy is "
        "OnFailure: all tasks start again together; make them the same, or give spec.runPolicy.backoffLimit"
    )


def test_the_longest_grace_the_highest_priority_and_the_shortest_limit_are_the_jobs():
    master = {"template": template(terminationGracePeriodSeconds=5, priority=1, activeDeadlineSeconds=50)}
    worker = {"template": template(terminationGracePeriodSeconds=60, priority=2)}
    spec = read(pytorchjob(master, worker, runPolicy={"activeDeadlineSeconds": 70}))
    assert (spec.grace_s, spec.priority, spec.time_limit_s) == (60.0, 2, 50.0)


SPECS = "spec.pytorchReplicaSpecs"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            pytorchjob(replicas(2)),
            f"{SPECS}.Master.replicas is 2, but there is one Master; write 1, and give the rest to",
        ),
        (pytorchjob(replicas(0), replicas(2)), f"{SPECS}.Master.replicas is 0, but there is one Master; write 1, and"),
        (
            pytorchjob(replicas("one")),
            f"{SPECS}.Master.replicas must be a whole number from 0 to 100000, but is ",
        ),
        (pytorchjob(worker=replicas(0)), f"{SPECS} has no replica; give a Master, a Worker or both"),
        (pytorchjob(worker=replicas(-1)), f"{SPECS}.Worker.replicas is -1; it must be from 0 to 100000"),
        (pytorchjob(worker=replicas(10**9)), f"{SPECS}.Worker.replicas is 1000000000; it must be from 0 to 100000"),
        (pytorchjob(), f"{SPECS} has no replica; give a Master, a Worker or both"),
        (pytorchjob(pytorchReplicaSpecs=None), f"{SPECS} must be a mapping of names to values, but is empty"),
        (pytorchjob(pytorchReplicaSpecs=[]), f"{SPECS} must be a mapping of names to values, but is a list: []"),
        (pytorchjob("x"), f"{SPECS}.Master must be a mapping of names to values, but is 'x'"),
        (pytorchjob({"replicas": 1}), f"{SPECS}.Master.template must be a mapping of names to values, but is empty"),
        (
            pytorchjob(pytorchReplicaSpecs={"Workers": replicas(1)}),
            f"{SPECS} has no field 'Workers'; did you mean 'Worker'? (used here: Master, Worker)",
        ),
        (
            pytorchjob(replicas(1, restartPolicy="Sometimes")),
            f"{SPECS}.Master.restartPolicy must be one of Always, OnFailure, Never, ExitCode, but is 'Sometimes'",
        ),
        (
            pytorchjob(replicas(1, container(), container(name="log"))),
            f"{SPECS}.Master.template.spec.containers has 2 containers: each would count as a rank, and WORLD_SIZE ",
        ),
        (
            pytorchjob(replicas(1, container(workingDir="/a")), replicas(1, container(workingDir="/b"))),
            f"{SPECS}.Master.template.spec.containers[0] runs in /a and {SPECS}.Worker.template.spec.containers[0] in",
        ),
        (
            pytorchjob(replicas(1), runPolicy="x"),
            "spec.runPolicy must be a mapping of names to values, but is 'x'",
        ),
        (
            pytorchjob(replicas(1), runPolicy={"backofLimit": 1}),
            "spec.runPolicy has no field 'backofLimit'; did you mean 'backoffLimit'? (used here: activeDeadlineSeconds",
        ),
        (
            pytorchjob(replicas(1), pytorchReplicaSpec={}),
            "spec has no field 'pytorchReplicaSpec'; did you mean 'pytorchReplicaSpecs'? (used here: pytorch",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_place(document, said):
    assert refusal(document).startswith(said)


def test_fields_that_mean_nothing_on_one_machine_are_accepted():
    policy = {
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 5,
        "schedulingPolicy": {"queue": "x"},
        "suspend": False,
    }
    assert read(pytorchjob(replicas(1), runPolicy=policy)) == read(pytorchjob(replicas(1)))


def test_a_suspended_pytorchjob_is_held():
    assert read(pytorchjob(replicas(1), runPolicy={"suspend": True})).is_held
