"""What a Kubernetes Job becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.job import Array, Dimension, ExitAction, ExitRule, JobSpec, Role, exit_action
from swell.model.quantity import IndexSet
from swell.model.resources import Resources

from .kubernetes import HERE, container, gpus, job, read, refusal, template, width


def upto(tasks: int, at_once: int) -> Array:
    return Array(IndexSet(((0, tasks - 1, 1),)), at_once)


def test_a_job_is_run_once():
    document = job(
        container(name="case", env=[{"name": "A", "value": "b"}], **gpus(1, 2)),
        backoffLimit=2,
        activeDeadlineSeconds="90",
        ttlSecondsAfterFinished=100,
    )
    assert read(document) == JobSpec(
        kind="Job",
        notes=(f"{HERE}: image",),
        name="sweep",
        roles=(Role("case", ("train",), Resources(1000, 0, 1), 1, (("A", "b"),)),),
        dimension=Dimension.GPUS,
        width_min=1,
        width_max=2,
        array=None,
        priority=0,
        time_limit_s=90.0,
        grace_s=30.0,
        workdir="/home/ann",
        env=(),
        umask=0o027,
        retries=2,
        rewrites_width=True,
    )


@pytest.mark.parametrize(
    ("fields", "array"),
    [
        ({}, None),
        ({"completions": 1}, None),
        ({"parallelism": 1}, None),
        ({"completions": 1, "parallelism": 4}, None),
        ({"completions": "1", "completionMode": "Indexed"}, None),
        ({"completions": 10}, upto(10, 1)),
        ({"completions": "10", "parallelism": "3"}, upto(10, 3)),
        ({"completions": 10, "parallelism": 3, "completionMode": "Indexed"}, upto(10, 3)),
        ({"completions": 10, "parallelism": 3, "completionMode": "NonIndexed"}, upto(10, 3)),
        ({"completions": 2, "parallelism": 9}, upto(2, 2)),
        ({"parallelism": 4}, upto(4, 4)),
        ({"completions": None, "parallelism": None, "completionMode": None}, None),
    ],
)
def test_several_completions_are_an_array_and_parallelism_is_how_many_at_once(fields, array):
    spec = read(job(**fields))
    assert spec.array == array
    assert width(spec) == ("tasks", 1, array.at_once if array else 1)


def test_each_task_of_an_array_has_its_gpus():
    spec = read(job(container(**gpus(2)), completions=5, parallelism=2))
    assert (spec.roles[0].resources.gpus, width(spec)) == (2, ("tasks", 1, 2))


COUNT = "must be a whole number from 0 to 1000000, but is"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"completions": 0},
            "completions is 0, so nothing would be run; write 1 or more, or leave it out, or submit it and `swell h",
        ),
        ({"parallelism": 0}, "parallelism is 0, so nothing would be run; write 1 or more, or leave it out, or submit "),
        ({"completions": -1}, "completions is -1; it must be from 0 to 1000000"),
        ({"completions": 1_000_001}, "completions is 1000001; it must be from 0 to 1000000"),
        ({"completions": "9" * 50}, f"completions {COUNT} '9999"),
        ({"completions": 1.5}, f"completions {COUNT} a number: 1.5"),
        ({"parallelism": [2]}, f"parallelism {COUNT} a list: [2]"),
        (
            {"completionMode": "indexed"},
            "completionMode must be one of NonIndexed, Indexed, but is 'indexed'; did",
        ),
        ({"completionMode": "Indexed"}, "completionMode is Indexed, but spec.completions does not say how many; give "),
        ({"suspend": "yes"}, "suspend must be true or false, but is 'yes'"),
        (
            {"successPolicy": {"rules": [1]}},
            "successPolicy ends a job before all its tasks have; here every task must ",
        ),
        ({"backoffLimit": -1}, "backoffLimit is -1; it must be from 0 to 2147483647"),
        ({"backoffLimit": "six"}, "backoffLimit must be a whole number from 0 to 2147483647, but is 'six'"),
        ({"activeDeadlineSeconds": 0}, "activeDeadlineSeconds is 0; it must be from 1 to 3153600000"),
        ({"template": None}, "template must be a mapping of names to values, but is empty"),
        ({"template": []}, "template must be a mapping of names to values, but is a list: []"),
        ({"template": {"spec": None}}, "template.spec must be a mapping of names to values, but is empty"),
        (
            {"template": {"specs": {}}},
            "template has no field 'specs'; did you mean 'spec'? (used here: metadata, spec)",
        ),
        (
            {"template": {"metadata": [], "spec": {}}},
            "template.metadata must be a mapping of names to values, but is a",
        ),
        (
            {"template": {"metadata": {"lables": {}}}},
            "template.metadata has no field 'lables'; did you mean 'labels'? ",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_place(fields, said):
    assert refusal(job(**fields)).startswith(f"spec.{said}")


def test_a_range_of_gpus_in_an_array_is_refused():
    assert refusal(job(container(**gpus(1, 2)), completions=3)) == (
        "spec.template.spec asks for 1..2 GPUs and is run 3 times: the tasks of an array are alike; "
        "give one number of GPUs, or one completion"
    )


def test_several_containers_in_an_array_are_refused_but_fine_in_one_gang():
    two = (container(), container(name="b"))
    assert refusal(job(*two, completions=3)) == (
        "spec.template.spec has 2 containers and is run 3 times: each task of an array is one process; "
        "keep one container, or one completion"
    )
    assert [role.name for role in read(job(*two)).roles] == ["main", "b"]


@pytest.mark.parametrize("policy", ["OnFailure", "Never", None])
@pytest.mark.parametrize(
    ("fields", "retries"),
    [
        ({}, 6),
        ({"backoffLimit": 0}, 0),
        ({"backoffLimit": "3"}, 3),
        ({"backoffLimit": 2**31 - 1}, 1000),
        ({"backoffLimitPerIndex": 1}, 1),
        ({"backoffLimit": 4, "backoffLimitPerIndex": 1}, 4),
    ],
)
def test_it_is_tried_again_as_often_as_backoff_limit_says_whichever_the_restart_policy(policy, fields, retries):
    assert read(job(pod=template(restartPolicy=policy), **fields)).retries == retries


@pytest.mark.parametrize(
    ("fields", "each", "together"),
    [
        ({}, 6, 6),
        ({"backoffLimit": 3}, 3, 3),
        ({"backoffLimit": 0}, 0, 0),
        ({"backoffLimitPerIndex": 1}, 1, None),
        ({"backoffLimit": 4, "backoffLimitPerIndex": 1}, 1, 4),
    ],
)
def test_retries_of_an_array_are_of_all_its_indices_or_of_each_as_kubernetes_counts_them(fields, each, together):
    """An array was never tried again, whatever its backoffLimit."""
    spec = read(job(completions=4, **fields))
    assert (spec.retries, spec.retries_together) == (each, together)


def test_a_restart_policy_that_kubernetes_refuses_for_a_job_is_refused():
    assert refusal(job(pod=template(restartPolicy="Always"))) == (
        "spec.template.spec.restartPolicy must be one of OnFailure, Never, but is 'Always'"
    )


def test_of_the_jobs_and_the_pods_deadline_the_shorter_counts():
    document = job(pod=template(activeDeadlineSeconds=50, terminationGracePeriodSeconds=3, priority=4))
    spec = read(document)
    assert (spec.time_limit_s, spec.grace_s, spec.priority) == (50.0, 3.0, 4)
    document["spec"]["activeDeadlineSeconds"] = 20
    assert read(document).time_limit_s == 20.0


def test_annotations_count_on_the_object_not_on_its_template():
    within = {**template(), "metadata": {"annotations": {"request": "1", "limit": "4"}, "labels": {"a": "b"}}}
    assert width(read(job(pod=within))) == ("tasks", 1, 1)
    assert width(read(job(annotations={"request": "1", "limit": "4"}))) == ("gpus", 1, 4)


def test_annotated_replicas_are_the_pods_at_once():
    assert read(job(annotations={"replicas": "3"}, completions=9, parallelism=3)).array == upto(9, 3)
    said = refusal(job(annotations={"replicas": "2"}, completions=9, parallelism=3))
    assert said.startswith("metadata.annotations: replicas is 2, but the manifest has 3 pods; ")


def test_fields_that_mean_nothing_on_one_machine_are_accepted():
    idle = {"ttlSecondsAfterFinished": 5, "selector": 1, "managedBy": "x"}
    assert read(job(suspend=False, successPolicy=None, **idle)) == read(job())


def failures(*rules):
    return {"rules": list(rules)}


def codes(action, *values, operator="In", **more):
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_a_policy_of_failures_tells_one_exit_code_from_another():
    """It was accepted in silence, and its user thought that exit code 42 ends the Job."""
    spec = read(job(podFailurePolicy=failures(DISRUPTED, codes("Ignore", 3), codes("FailJob", 0, 1, operator="NotIn"))))
    assert spec.exit_rules == (
        ExitRule(ExitAction.IGNORE, (3,)),
        ExitRule(ExitAction.FAIL, (0, 1), is_other=True),
    )
    found = [exit_action(spec.exit_rules, code, 0) for code in (0, 1, 3, 42, None)]
    assert found == [None, None, ExitAction.IGNORE, ExitAction.FAIL, None]
    assert spec.notes == read(job()).notes


def test_a_rule_about_one_container_is_about_its_task():
    pod = template(container(), container(name="b"))
    spec = read(job(template=pod, podFailurePolicy=failures(codes("FailJob", 42, containerName="b"))))
    assert spec.exit_rules == (ExitRule(ExitAction.FAIL, (42,), ranks=(1, 1)),)


def test_in_an_array_it_is_said_that_a_rule_is_about_the_index_alone():
    spec = read(job(completions=3, podFailurePolicy=failures(codes("FailJob", 42), codes("FailIndex", 43))))
    assert spec.exit_rules == (ExitRule(ExitAction.FAIL, (42,)), ExitRule(ExitAction.FAIL, (43,)))
    assert spec.notes[-1] == (
        "spec.podFailurePolicy.rules[0].action is FailJob, and the tasks are independent here: an index that it fits "
        "is not tried again, and the others go on"
    )


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"action": "FailJob"}, " has neither onExitCodes nor onPodConditions; give one of them"),
        (codes("FailJob"), ".onExitCodes.values has 0 exit codes; give 1 to 255"),
        (codes("FailJob", 0), ".onExitCodes.values[0] is 0; it must be from 1 to 255"),
        (codes("FailJob", 256), ".onExitCodes.values[0] is 256; it must be from 1 to 255"),
        (codes("Fail", 1), ".action must be one of FailJob, FailIndex, Ignore, Count, but is 'Fail'"),
        (codes("Count", 1, containerName="c"), ".onExitCodes.containerName 'c' is none of the pod's: main"),
        (codes("Count", 1, container="c"), ".onExitCodes has no field 'container'; did you mean 'containerName'?"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rule, said):
    assert refusal(job(podFailurePolicy=failures(rule))).startswith(f"spec.podFailurePolicy.rules[0]{said}")


def test_a_misspelt_field_is_refused_and_the_right_one_named():
    assert refusal(job(completion=3)).startswith(
        "spec has no field 'completion'; did you mean 'completions'? (used here: template, completions, parallelism, "
    )


def test_a_suspended_job_is_held():
    assert read(job(suspend=True)) == replace(read(job()), is_held=True)


def indexed(fields: object, **spec: object) -> dict[str, object]:
    """A Job whose variable INDEX is what its pods find in a field of theirs."""
    variable = {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": fields}}}
    return job(container(env=[variable]), completions=3, parallelism=2, **spec)


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_pods_of_an_indexed_job_find_their_index_in_the_field_where_kubernetes_writes_it(kind):
    path = f"metadata.{kind}['batch.kubernetes.io/job-completion-index']"
    [role] = read(indexed(path, completionMode="Indexed")).roles
    assert [(one.name, [one.of(task) for task in range(3)]) for one in role.numbered] == [("INDEX", [0, 1, 2])]
    said = "spec.template.spec.containers[0].env[0]: valueFrom.fieldRef can be metadata.name or metadata.namespace, but"
    assert refusal(indexed(path)).startswith(said)  # without an index there is no such field
