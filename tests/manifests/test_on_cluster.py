"""What manifests become where Kubernetes runs them: the object itself is created, and Swell places its pods."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from specs import spec
from swell.manifests import ObjectRef, object_ref, read_manifests
from swell.model.job import Dimension, Role
from swell.model.resources import Resources

from . import kubernetes
from .kubernetes import GPU, container, gpus, job, jobset, pod, pytorchjob, replicas, replicated, template, width

CLUSTER = replace(kubernetes.CONTEXT, on_cluster=True)


read = partial(kubernetes.read, context=CLUSTER)
refusal = partial(kubernetes.refusal, context=CLUSTER)


# -- pods ----------------------------------------------------------------------------------------------------------


def test_a_pod_with_all_that_kubernetes_can_do_is_one_task_of_its_size():
    document = pod(
        {
            "name": "train",
            "image": "pytorch:2.4",
            "args": ["--epochs", "3"],
            "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "c"}}],
            "ports": [{"containerPort": 80}],
            "livenessProbe": {"exec": {"command": ["true"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {"runAsNonRoot": True},
            "aFieldOfTomorrow": {"x": 1},
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi", GPU: 1}, "limits": {GPU: 2}},
        },
        {"name": "proxy", "image": "envoy", "resources": {"requests": {"cpu": "100m"}}},
        initContainers=[{"name": "fetch", "image": "curl", "resources": {"limits": {"memory": "4Gi"}}}],
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        restartPolicy="Never",
        schedulerName="swell",
        terminationGracePeriodSeconds=5,
        anotherFieldOfTomorrow=True,
    )
    assert read(document) == spec(
        kind="Pod",
        name="resnet",
        roles=(Role("train", ("--epochs", "3"), Resources(600, 4096, 1), 1),),
        dimension=Dimension.GPUS,
        width_max=2,
        grace_s=5.0,
        workdir="",
        umask=0o027,
        rewrites_width=True,
    )


def test_on_a_machine_the_same_things_stay_refused():
    for given in ({"initContainers": [{"name": "x"}]}, {"aFieldOfTomorrow": 1}):
        assert kubernetes.refusal(pod(**given)).startswith("spec")
        assert read(pod(**given)).roles[0].resources == Resources()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            pod(nodeName="n7"),
            (
                "spec.nodeName names the node, but Swell places the pods of a job, all of them together; write "
                "nodeSelector: {kubernetes.io/hostname: NODE} to allow no other"
            ),
        ),
        (
            pod(schedulingGates=[{"name": "x"}]),
            (
                "spec.schedulingGates keeps it from being placed until somebody takes the gate away; leave it out, or "
                "submit it and `swell hold` it"
            ),
        ),
        (
            pod(resourceClaims=[{"name": "gpu"}]),
            (
                "spec.resourceClaims asks for devices by claim, which only Kubernetes' own scheduler hands out, and "
                "Swell places this pod; ask for nvidia.com/gpu"
            ),
        ),
        (
            pod(schedulerName="volcano"),
            (
                "spec.schedulerName is 'volcano', but what is submitted here is placed by Swell; leave it out, "
                "or create it with kubectl for that scheduler"
            ),
        ),
        (pod(containers=[]), "spec.containers is empty; a pod has at least one container"),
        (
            job(pod=template(container(), nodeName="n7")),
            (
                "spec.template.spec.nodeName names the node, but Swell places the pods of a job, all of them together; "
                "write nodeSelector: {kubernetes.io/hostname: NODE} to allow no other"
            ),
        ),
        (
            pod(
                container(name="a"),
                container(name="b"),
                metadata={"name": "x", "annotations": {"request": 1, "limit": 2}},
            ),
            (
                "metadata.annotations ask for 1..2 GPUs (request, limit), but not for which of the containers 'a', "
                "'b'; write requests and limits of nvidia.com/gpu there instead"
            ),
        ),
        (
            pod(metadata={"name": "x", "annotations": {"swell.dev/epoch": "3"}}),
            (
                "metadata.annotations has no field 'swell.dev/epoch'; did you mean 'swell.dev/epochs'? (known: "
                "swell.dev/checkpoints, swell.dev/epochs, swell.dev/gpu-memory, swell.dev/priority, swell.dev/resize, "
                "swell.dev/shared-volume, swell.dev/tasks, swell.dev/time)"
            ),
        ),
    ],
)
def test_what_would_take_the_placing_from_us_or_leave_it_unclear_is_refused(document, message):
    assert refusal(document) == message


@pytest.mark.parametrize("name", ["", "swell", "default-scheduler"])
def test_a_scheduler_that_says_nothing_else_is_accepted(name):
    assert read(pod(schedulerName=name)).notes == ()


@pytest.mark.parametrize("name", ["scheduler-plugins-scheduler", "fluence"])
def test_manifests_for_the_schedulers_that_swell_takes_over_from_run_as_they_are(name):
    """genai's pods and Jobs name the scheduler of gangs that its cluster had; they were refused."""
    for document in (pod(schedulerName=name), job(pod=template(schedulerName=name))):
        [note] = read(document).notes
        assert note.endswith(f"spec.schedulerName {name}: Swell is in its place, and places what is submitted to it")


@pytest.mark.parametrize(
    ("document", "note"),
    [
        (
            pod(container(resources={"limits": {"rdma/hca": 1, "hugepages-2Mi": "4Mi"}})),
            (
                "spec asks for hugepages-2Mi, rdma/hca, which Swell does not count: the pod may be placed where there "
                "is none left, and its node refuse it"
            ),
        ),
        (
            pod(topologySpreadConstraints=[{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]),
            "spec.topologySpreadConstraints are wishes (ScheduleAnyway) and have no effect",
        ),
        (
            pod(container(ports=[{"containerPort": 80, "hostPort": 80}])),
            "spec asks for a hostPort: a node where it is taken refuses the pod, and Swell does not know",
        ),
        (
            pod(priorityClassName="gold"),
            "spec.priorityClassName 'gold' is not known here and has no effect; annotate swell.dev/priority: '100'",
        ),
        (
            pod(restartPolicy="Always"),
            (
                "spec.restartPolicy is Always, with which it would begin again after it has succeeded; it is created "
                "with OnFailure"
            ),
        ),
    ],
)
def test_what_is_not_looked_after_is_said(document, note):
    assert read(document).notes == (note,)


def test_priorities_of_kubernetes_beyond_ours_are_our_highest():
    assert read(pod(priority=2_000_000_000)).priority == 1_000_000


def test_an_object_that_is_in_the_cluster_already_may_have_annotations_from_us():
    metadata = {"name": "x", "uid": "7f", "annotations": {"swell.dev/attempt": "12.1", "swell.dev/priority": "5"}}
    assert read(pod(metadata=metadata, restartPolicy="Always")).priority == 5
    assert read(pod(metadata=metadata, restartPolicy="Always")).notes == ()


# -- the other kinds -----------------------------------------------------------------------------------------------


def test_a_job_counts_its_pods_and_leaves_trying_again_to_its_controller():
    given = {"completions": 8, "parallelism": 2, "completionMode": "NonIndexed", "backoffLimit": 9}
    spec = read(job(container(), container(name="beside"), successPolicy={"rules": []}, **given))
    assert spec.array is not None
    assert (str(spec.array.indices), spec.array.at_once, spec.retries, width(spec)) == ("0-7", 2, 0, ("tasks", 1, 2))
    assert [(role.name, role.count) for role in spec.roles] == [("main", 1)]


def test_a_pytorchjob_of_pods_with_several_containers_is_a_gang_of_pods():
    pair = (container(name="pytorch", **gpus(1, 4)), container(name="log", resources={"requests": {"cpu": 1}}))
    document = pytorchjob(
        replicas(1, *pair, restartPolicy="Never"),
        replicas(2, *pair, restartPolicy="OnFailure"),
        nprocPerNode="gpu",
        runPolicy={"backoffLimit": 3, "tomorrow": 1},
        tomorrow={},
    )
    spec = read(document)
    assert [(role.name, role.count, role.resources, role.env) for role in spec.roles] == [
        ("master", 1, Resources(1000, 0, 1), ()),
        ("worker", 2, Resources(1000, 0, 1), ()),
    ]
    assert (width(spec), spec.retries) == (("gpus", 1, 4), 0)


def test_a_jobset_ends_as_its_controller_says_but_starts_whole():
    entries = (replicated("driver"), replicated("worker", 2, completions=3, parallelism=3, backoffLimit=2))
    policies = {
        "successPolicy": {"operator": "Any", "targetReplicatedJobs": ["driver"]},
        "failurePolicy": {"maxRestarts": 3, "rules": [{"action": "FailJobSet"}]},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
    }
    spec = read(jobset(*entries, **policies))
    assert [(role.name, role.count, role.numbered) for role in spec.roles] == [("driver", 1, ()), ("worker", 6, ())]
    assert (width(spec), spec.retries) == (("tasks", 1, 1), 0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            jobset(replicated("a"), {**replicated("b"), "dependsOn": [{"name": "a", "status": "Ready"}]}),
            (
                "spec.replicatedJobs[1].dependsOn lets it start after another, but all tasks of a job start together; "
                "leave it out, or submit them as jobs of their own and let one wait for the other"
            ),
        ),
        (
            jobset(replicated("a"), replicated("b"), startupPolicy={"startupPolicyOrder": "InOrder"}),
            (
                "spec.startupPolicy.startupPolicyOrder is InOrder, but all tasks of a job start together; write "
                "AnyOrder and let the command wait for the others, or submit them as jobs of their own"
            ),
        ),
        (
            jobset(replicated("a", completions=4, parallelism=2, completionMode="NonIndexed")),
            (
                "spec.replicatedJobs[0].template.spec.completionMode is NonIndexed and parallelism 2 of 4: which task "
                "a pod is could not be told; write Indexed, or leave it out"
            ),
        ),
    ],
)
def test_what_contradicts_a_start_of_all_together_is_refused_there_too(document, message):
    assert refusal(document) == message


def test_a_jobset_that_runs_a_few_pods_at_a_time_is_the_same_array_there():
    spec = read(jobset(replicated("a", 3, completions=4, parallelism=2)))
    assert spec.array is not None
    assert (str(spec.array.indices), spec.array.at_once, spec.retries) == ("0-11", 6, 0)


# -- documents -----------------------------------------------------------------------------------------------------

TEXT = """
apiVersion: batch/v1
kind: Job
metadata: {name: sweep, namespace: lab}
spec:
  completions: 10
  suspend: false
  template:
    spec:
      restartPolicy: Never
      volumes: [{name: s, secret: {secretName: s, defaultMode: 0640}}]
      containers:
      - {name: main, image: "python:3.10", args: ["3.10", no], resources: {limits: {cpu: 0.5, memory: 1Gi}}}
---
apiVersion: swell/v1
kind: Job
metadata: {name: own}
spec: {command: [python, 3.10], image: python, gpus: 1}
"""


def test_documents_come_with_their_jobs_and_have_numbers_where_the_api_server_wants_them():
    first, second = read_manifests(TEXT, CLUSTER)
    assert (first.spec.name, second.spec.name) == ("sweep", "own")
    assert first.document["spec"] == {
        "completions": 10,
        "suspend": False,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "volumes": [{"name": "s", "secret": {"secretName": "s", "defaultMode": 0o640}}],
                "containers": [
                    {
                        "name": "main",
                        "image": "python:3.10",
                        "args": ["3.10", "no"],
                        "resources": {"limits": {"cpu": 0.5, "memory": "1Gi"}},
                    }
                ],
            }
        },
    }
    assert second.document["spec"] == {"command": ["python", "3.10"], "image": "python", "gpus": "1"}
    assert second.spec.roles[0].command == ("python", "3.10")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-12", -12),
        ("0644", 0o644),
        ("0o644", 0o644),
        ("0x1F", 31),
        ("1.50", 1.5),
        ("1e3", 1000),
        ("08", 8),
        ("1.0", 1),
        ("1e30", 1e30),
        ("1e999", "1e999"),
        ("9" * 40, "9" * 40),
        ("'3'", "3"),
        ("1Gi", "1Gi"),
        ("1.2.3", "1.2.3"),
        ("2026-01-01", "2026-01-01"),
        ("-", "-"),
        ("yes", "yes"),
        (".inf", ".inf"),
        ("1_000", "1_000"),
    ],
)
def test_numbers_are_read_as_kubectl_would_and_everything_else_stays_text(text, value):
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    [one] = read_manifests(f"{head}spec: {{containers: [{{name: a}}], x: {text}}}", CLUSTER)
    found = one.document["spec"]["x"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("given", [{}, {"restartPolicy": "Always"}])
def test_a_pod_that_would_begin_again_after_success_is_created_to_end(given):
    document = pod(**given)
    [one] = read_manifests(document, CLUSTER)
    assert one.document == pod(restartPolicy="OnFailure")
    assert document == pod(**given), "what was given was changed"


@pytest.mark.parametrize(
    "document",
    [
        pod(restartPolicy="Never"),
        pod(metadata={"name": "resnet", "uid": "7f"}),
        job(),
        pytorchjob(replicas(1)),
    ],
)
def test_every_other_document_is_created_as_it_is(document):
    assert [one.document for one in read_manifests(document, CLUSTER)] == [document]


def test_an_object_is_found_by_its_kind_namespace_and_name():
    assert object_ref(pod()) == ObjectRef("v1", "Pod", "default", "resnet")
    assert object_ref(job(), namespace="lab") == ObjectRef("batch/v1", "Job", "lab", "sweep")
    there = pod(metadata={"generateName": "x-", "namespace": "team"})
    assert object_ref(there, namespace="lab") == ObjectRef("v1", "Pod", "team", None)
