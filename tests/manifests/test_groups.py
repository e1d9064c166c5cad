"""Pod groups, and priorities by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from swell.errors import Rejected
from swell.manifests import Context, read_document, read_manifests
from swell.model.cluster import PriorityClass

from .kubernetes import (
    CONTEXT,
    container,
    gpus,
    job,
    jobset,
    pod,
    pytorchjob,
    read,
    refusal,
    replicated,
    template,
    told,
    width,
)

GROUP = "scheduling.x-k8s.io/pod-group"
TASKS = "swell.dev/tasks"
SIZE = "fluence.group-size"


def grouped(name: str = "ring", **spec: Any) -> dict[str, Any]:
    """A template with the label."""
    return {"metadata": {"labels": {GROUP: name}}, **template(**spec)}


def sized(size: object) -> dict[str, Any]:
    """A template with Fluence's label, for Fluence."""
    return {"metadata": {"labels": {SIZE: str(size)}}, **template(schedulerName="fluence")}


# -- groups --------------------------------------------------------------------------------------------------------


def test_the_pods_of_a_job_in_a_group_are_a_gang():
    spec = read(job(pod=grouped(), completions=4, parallelism=4, completionMode="Indexed"))
    assert (spec.array, width(spec), spec.roles[0].count, spec.pod_group) == (None, ("tasks", 4, 4), 4, "ring")


def test_the_label_may_be_on_the_job_itself_and_the_templates_wins():
    document = job(completions=2, parallelism=2)
    document["metadata"]["labels"] = {GROUP: "outer"}
    assert (read(document).pod_group, read(document).array) == ("outer", None)
    document["spec"]["template"] = grouped("inner")
    assert read(document).pod_group == "inner"


BOTH = pytest.mark.parametrize("context", [CONTEXT, replace(CONTEXT, on_cluster=True)])


@BOTH
@pytest.mark.parametrize("counts", [{"completions": 4, "parallelism": 4}, {"parallelism": 4}])
@pytest.mark.parametrize(
    "pod",
    [
        {**template(schedulerName="fluence")},
        {"metadata": {"labels": {SIZE: "4"}}, **template(schedulerName="fluence")},
        {"metadata": {"labels": {SIZE: "4"}}, **template()},
        {"metadata": {"labels": {GROUP: "ring", SIZE: "4"}}, **template()},
    ],
)
def test_a_job_that_fluence_would_group_is_a_gang_of_its_parallelism(pod, counts, context):
    """Its webhook does that to every Job that names it; as an array its pods would hold nodes while others wait."""
    spec = read(job(pod=pod, completionMode="Indexed" if "completions" in counts else None, **counts), context)
    assert (spec.array, width(spec), spec.roles[0].count) == (None, ("tasks", 4, 4), 4)
    assert not [note for note in spec.notes if "schedulerName" in note and "no effect" in note]


@BOTH
def test_pods_that_fluence_would_start_one_by_one_are_an_array(context):
    alone = template(schedulerName="fluence")
    for document in (job(pod=alone, completions=4), job(pod=sized(1), completions=4, parallelism=4)):
        spec = read(document, context)
        assert spec.array is not None
        assert len(spec.array.indices) == 4


@BOTH
def test_a_group_with_a_name_may_be_larger_than_the_job(context):
    """Others of it may be pods of another object; it was accepted before the label was read."""
    template_of = {"metadata": {"labels": {GROUP: "ring", SIZE: "5"}}, **template()}
    spec = read(job(pod=template_of, completions=4, parallelism=4), context)
    assert (spec.array, width(spec), spec.pod_group) == (None, ("tasks", 4, 4), "ring")


@BOTH
def test_of_a_group_that_may_start_with_fewer_all_start_together_and_that_is_said(context):
    document = job(completions=4, parallelism=4)
    document["metadata"]["labels"] = {SIZE: "2"}
    spec = read(document, context)
    assert (spec.array, width(spec)) == (None, ("tasks", 4, 4))
    assert (
        "the label fluence.group-size is 2, but all 4 pods start together; for fewer annotate swell.dev/tasks: 2..4"
    ) in spec.notes
    document["metadata"]["annotations"] = {TASKS: "2..4"}
    assert (width(read(document, context)), told(read(document, context))) == (("tasks", 2, 4), ())


def test_a_gang_of_a_job_may_have_a_range_of_gpus():
    ranged = {"metadata": {"labels": {GROUP: "ring"}}, **template(container(**gpus(1, 2)))}
    assert width(read(job(pod=ranged, completions=2, parallelism=2))) == ("gpus", 1, 2)


@pytest.mark.parametrize("counts", [{"completions": 3, "parallelism": 3}, {"parallelism": 2}, {}])
@pytest.mark.parametrize("context", [CONTEXT, replace(CONTEXT, on_cluster=True)])
def test_a_gang_of_a_job_may_have_a_range_of_tasks(counts, context):
    spec = read(job(pod=grouped(), annotations={TASKS: "2..4"}, **counts), context)
    assert (width(spec), spec.roles[0].count, spec.array, spec.pod_group) == (("tasks", 2, 4), 2, None, "ring")
    assert width(read(job(pod=grouped(), annotations={TASKS: 3}, **counts | {"parallelism": 3}))) == ("tasks", 3, 3)


RANGED = {"metadata": {"labels": {GROUP: "ring"}}, **template(container(**gpus(1, 2)))}
SHARING = {TASKS: "2..4", "swell.dev/gpu-memory": "6GiB"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (job(pod=grouped(), annotations={TASKS: "0..4"}), " is 0 at the least, which is too few; a job has at least 1"),
        (job(pod=grouped(), annotations={TASKS: "4..2"}), ": '4..2': the maximum 2 is below the minimum 4; write 2..4"),
        (job(pod=grouped(), annotations={TASKS: "few"}), ": 'few' is neither a count nor a range; write 2 or 1..4"),
        (
            job(pod=grouped(), annotations={TASKS: "2..4"}, completions=5, parallelism=5),
            " is 2..4, but spec.completions and parallelism say 5; make them agree",
        ),
        (
            job(pod=grouped(), annotations={TASKS: "2..4"}, completions=1),
            " is 2..4, but spec.completions and parallelism say 1; make them agree",
        ),
        (
            job(annotations={TASKS: "2..4"}, completions=3, parallelism=3),
            (
                " is 2..4, a range of tasks that start together, but spec.template is in no pod group, so its tasks "
                f"are independent; give it the label {GROUP}, or leave the annotation out"
            ),
        ),
        (
            job(pod=RANGED, annotations={TASKS: "2..4"}),
            (
                " is 2..4, and spec.template.spec asks for 1..2 GPUs: a job is elastic in one dimension; give a fixed "
                "number of GPUs, or of tasks"
            ),
        ),
        (
            job(pod=grouped(), annotations=SHARING),
            (
                " is 2..4, and they share GPUs (swell.dev/gpu-memory): a job that shares GPUs has a fixed number of "
                "tasks; leave one of the two annotations out"
            ),
        ),
    ],
)
def test_a_range_of_tasks_that_cannot_be_meant_is_refused(document, said):
    assert refusal(document) == f"metadata.annotations: {TASKS}{said}"


@pytest.mark.parametrize(
    "document",
    [
        pod(metadata={"name": "a", "annotations": {TASKS: "2..4"}, "labels": {GROUP: "ring"}}),
        pytorchjob(worker={"replicas": 2, "template": grouped()}, annotations={TASKS: "2..4"}),
        jobset(replicated("w", 2, grouped()), annotations={TASKS: "2..4"}),
    ],
)
def test_other_kinds_have_no_annotated_range_of_tasks(document):
    assert refusal(document) == (
        f"metadata.annotations: {TASKS} is a range of tasks, for a batch/v1 Job, but this is a {document['kind']}; "
        "leave it out (of a PyTorchJob write elasticPolicy: {minReplicas, maxReplicas})"
    )


def test_other_kinds_are_gangs_anyway_and_keep_the_name():
    labelled = pod(metadata={"name": "a", "labels": {GROUP: "ring"}})
    worker = {"replicas": 2, "template": grouped()}
    objects = (labelled, pytorchjob(worker=worker), jobset(replicated("w", 2, grouped())))
    assert [read(one).pod_group for one in objects] == ["ring"] * 3
    assert read(pod()).pod_group is None


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            job(pod=grouped(), completions=10, parallelism=2),
            "spec.template is in the pod group 'ring', which starts together, but of its 10 pods 2 may run at once; ",
        ),
        (
            job(pod=grouped(), completions=200_000, parallelism=200_000),
            "spec.template is in the pod group 'ring' and has 200000 pods; a job has at most 100000 tasks",
        ),
        (
            job(pod=template(schedulerName="fluence"), completions=10, parallelism=2),
            (
                "spec.template has the schedulerName fluence, which starts together, but of its 10 pods 2 may run at "
                "once; write parallelism: 10, or leave the schedulerName out"
            ),
        ),
        (
            job(pod=sized(5), completions=4, parallelism=4),
            "the label fluence.group-size is 5, but the Job has 4 pods, so they would never start; write 4",
        ),
        (job(pod=sized("many"), parallelism=4), "the label fluence.group-size must be a whole number from 0 to"),
        (
            jobset(replicated("a", template=grouped("x")), replicated("b", template=grouped("y"))),
            "spec.replicatedJobs[0].template.spec.template.spec is in the pod group 'x' and spec.replicatedJobs[1]",
        ),
        (pod(metadata={"name": "a", "labels": {GROUP: 5}}), f"metadata.labels: {GROUP}: a number: 5 cannot be the val"),
    ],
)
def test_a_group_that_cannot_start_together_is_refused(document, said):
    assert refusal(document).startswith(said)


def test_a_group_in_two_documents_is_refused():
    pods = [pod(metadata={"name": f"p{n}", "labels": {GROUP: group}}) for n, group in enumerate(["a", "b", "a"])]
    with pytest.raises(Rejected) as caught:
        read_manifests(yaml.safe_dump_all(pods), CONTEXT)
    assert str(caught.value) == (
        "documents 1 and 3 are both in the pod group 'a', but each is a job of its own and would start alone; "
        "write them as one Job, JobSet or PyTorchJob"
    )
    assert [one.spec.pod_group for one in read_manifests(yaml.safe_dump_all(pods[:2]), CONTEXT)] == ["a", "b"]


# -- priorities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "priority"),
    [
        ({"priorityClassName": "high"}, 100),
        ({"priorityClassName": "huge"}, 1_000_000),
        ({"priorityClassName": "least"}, -1_000_000),
        ({"priorityClassName": "high", "priority": 7}, 7),
        ({"priorityClassName": "nobody's", "priority": 7}, 7),
    ],
)
def test_a_priority_class_is_what_the_callers_table_says(given, priority):
    table = {"high": PriorityClass(100), "huge": PriorityClass(2 * 10**9), "least": PriorityClass(-(10**9))}
    spec = read_document(pod(**given), Context(workdir="/", priority_classes=table))
    assert (spec.priority, told(spec)) == (priority, ())


def test_a_class_nobody_knows_counts_for_nothing_and_is_noted():
    spec = read(pod(priorityClassName="high"))
    said = "spec.priorityClassName 'high' is not known here and has no effect; write priority: 100"
    assert (spec.priority, told(spec)) == (0, (said,))


@pytest.mark.parametrize(("given", "priority"), [(2_000_001_000, 1_000_000), (-2_000_000_000, -1_000_000), (7, 7)])
def test_what_a_cluster_has_given_a_pod_is_brought_into_our_range(given, priority):
    spec = read_document(pod(priority=given), Context(workdir="/", on_cluster=True))
    assert spec.priority == priority
