"""What a Kubernetes Pod becomes, and what is said of what it cannot become."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.manifests import Context, read_document
from swell.model.job import Dimension, JobSpec, Role
from swell.model.resources import Resources

from .kubernetes import CONTEXT, GPU, HERE, container, gpus, pod, pytorchjob, read, refusal, replicas, width


def test_a_pod_is_a_job_of_one_task():
    document = pod(
        container(
            command=["python", "train.py"],
            args=["--epochs", 3],
            env=[{"name": "NGPU", "value": "2"}, {"name": "DEBUG", "value": True}],
            workingDir="/data/runs",
            resources={"requests": {"cpu": "500m", "memory": "2Gi", GPU: 2}, "limits": {"cpu": 4, GPU: 4}},
        ),
        restartPolicy="OnFailure",
        activeDeadlineSeconds="3600",
        terminationGracePeriodSeconds=5,
        priority=7,
    )
    assert read(document) == JobSpec(
        kind="Pod",
        notes=(f"{HERE}: image",),
        name="resnet",
        roles=(
            Role(
                "main",
                ("python", "train.py", "--epochs", "3"),
                Resources(500, 2048, 2),
                1,
                (("DEBUG", "true"), ("NGPU", "2")),
                cpu_limit_milli=4000,
            ),
        ),
        dimension=Dimension.GPUS,
        width_min=2,
        width_max=4,
        array=None,
        priority=7,
        time_limit_s=3600.0,
        grace_s=5.0,
        workdir="/data/runs",
        env=(),
        umask=0o027,
        retries=6,
        rewrites_width=True,
    )


def test_a_command_alone_takes_one_cpu_and_no_gpu_and_needs_no_env():
    """The original crashed on a container without env."""
    spec = read(pod())
    assert (spec.roles, spec.env, spec.workdir) == (
        (Role("main", ("train",), Resources(1000, 0, 0), 1),),
        (),
        "/home/ann",
    )
    assert width(spec) == ("tasks", 1, 1)
    assert (spec.time_limit_s, spec.grace_s, spec.priority) == (None, 30.0, 0)


def test_ngpu_and_num_processes_follow_the_width_where_it_counts_gpus():
    """With two tasks of four GPUs each the width is a number of tasks, and NGPU must stay 4."""
    assert read(pod(container(**gpus(2, 4)))).rewrites_width
    assert read(pod(container(**gpus(2)))).rewrites_width
    assert not read(pod(container(name="a", **gpus(4)), container(**gpus(4)))).rewrites_width
    assert not read(pod()).rewrites_width


# -- several containers --------------------------------------------------------------------------------------------


def test_containers_of_one_pod_are_roles_of_one_gang_with_their_own_variables():
    document = pod(
        container(name="actor", command=["act"], env=[{"name": "ROLE", "value": "actor"}], **gpus(1)),
        container(name="learner", command=["learn"], resources={"requests": {"cpu": 2, GPU: 2}}),
    )
    spec = read(document)
    assert spec.roles == (
        Role("actor", ("act",), Resources(1000, 0, 1), 1, (("ROLE", "actor"),)),
        Role("learner", ("learn",), Resources(2000, 0, 2), 1),
    )
    assert (width(spec), spec.env, spec.tasks_total) == (("tasks", 1, 1), (), 2)


def test_a_range_of_gpus_may_be_on_one_container_when_the_others_have_none():
    spec = read(pod(container(name="log"), container(**gpus(1, 4))))
    assert width(spec) == ("gpus", 1, 4)
    assert [(role.name, role.resources.gpus) for role in spec.roles] == [("log", 0), ("main", 1)]


@pytest.mark.parametrize("other", [gpus(1, 4), gpus(2, 4), gpus(1)])
def test_a_range_of_gpus_beside_other_gpus_is_refused(other):
    said = refusal(pod(container(name="a", **gpus(1, 4)), container(name="b", **other)))
    assert said.startswith("spec.containers ask for a range of GPUs beside other GPUs ('a': 1..4, 'b': ")
    assert said.endswith("only one container of a pod may have GPUs when one of them has a range")


def test_containers_without_a_name_are_given_one():
    nameless = {"command": ["x"]}
    assert [role.name for role in read(pod(nameless, dict(nameless))).roles] == ["main", "container-1"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (pod(container(), container()), "spec.containers has the name 'main' twice; every container has its own"),
        (
            pod(*[container(name=f"c{n}") for n in range(33)]),
            "spec.containers has 33 containers; at most 32: split the",
        ),
        (
            pod(container(workingDir="/a"), container(name="b", workingDir="/b")),
            "spec.containers[0] runs in /a and spec.containers[1] in /b; a job has one folder: give both the same",
        ),
        (
            pod(container(), container(name="b", workingDir="/b")),
            "spec.containers[0] runs in no workingDir and spec.containers[1] in /b; a job has one folder: give both",
        ),
        (pod(container(name="../x")), "spec.containers[0]: name '../x' cannot be used: a name is 1 to 63 letters"),
        (pod(container(name=["x"])), "spec.containers[0]: name ['x'] cannot be used: a name is 1 to 63 letters"),
        (pod(container(), "x"), "spec.containers[1] must be a mapping of names to values, but is 'x'"),
    ],
)
def test_containers_that_cannot_be_run_together_are_refused(document, said):
    assert refusal(document).startswith(said)


@pytest.mark.parametrize("containers", [None, []])
def test_a_pod_without_a_container_is_refused(containers):
    document = pod()
    document["spec"]["containers"] = containers
    assert refusal(document) == "spec.containers is empty; a pod has at least one container"


# -- the pod as a whole --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "retries"), [("OnFailure", 6), ("Never", 0), ("Always", 6), (None, 6)])
def test_a_pod_is_tried_again_six_times_unless_it_says_never_and_always_is_on_failure(policy, retries):
    assert read(pod(restartPolicy=policy)).retries == retries


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"restartPolicy": "ExitCode"},
            "restartPolicy must be one of Always, OnFailure, Never, but is 'ExitCode'",
        ),
        (
            {"restartPolicy": "onFailure"},
            "restartPolicy must be one of Always, OnFailure, Never, but is 'onFailure'; did you mean OnFailure?",
        ),
        ({"restartPolicy": {}}, "restartPolicy must be one of Always, OnFailure, Never, but is a mapping"),
        ({"activeDeadlineSeconds": 0}, "activeDeadlineSeconds is 0; it must be from 1 to 3153600000"),
        ({"activeDeadlineSeconds": "1h"}, "activeDeadlineSeconds must be a whole number from 1 to 3153600000, but is "),
        ({"activeDeadlineSeconds": 1.5}, "activeDeadlineSeconds must be a whole number from 1 to 3153600000, but is a"),
        ({"activeDeadlineSeconds": 10**18}, "activeDeadlineSeconds must be a whole number from 1 to 3153600000, but"),
        ({"terminationGracePeriodSeconds": -1}, "terminationGracePeriodSeconds is -1; it must be from 0 to 3153600000"),
        ({"priority": 2_000_000_000}, "priority is 2000000000; it must be from -1000000 to 1000000"),
        ({"priority": [1]}, "priority must be a whole number from -1000000 to 1000000, but is a list: [1]"),
        ({"initContainers": [container()]}, "initContainers cannot be run: a job here has no step before its tasks; "),
        ({"initContainers": "x"}, "initContainers cannot be run: "),
        ({"schedulingGates": [{"name": "x"}]}, "schedulingGates keeps it from being started; leave it out, or submit "),
        (
            {"resources": {"limits": {GPU: 1}}},
            "resources is for the pod as a whole, but every process has its own here",
        ),
        ({"resourceClaims": [1]}, "resourceClaims asks for devices by claim"),
        ({"ephemeralContainers": [1]}, "ephemeralContainers cannot be run: "),
    ],
)
def test_what_cannot_be_kept_is_refused_with_what_to_do(fields, said):
    assert refusal(pod(**fields)).startswith(f"spec.{said}")


def test_a_grace_of_nothing_is_kept():
    assert read(pod(terminationGracePeriodSeconds=0)).grace_s == 0.0


def test_fields_that_mean_nothing_on_one_machine_are_accepted_whatever_they_say_and_named():
    document = pod(
        container(imagePullPolicy="Never", volumeMounts="x", ports=[{}], livenessProbe=1, lifecycle=[], tty=True),
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}],
        topologySpreadConstraints=5,
        schedulerName="other",
        serviceAccountName="me",
        securityContext={},
        hostIPC=True,
        initContainers=[],
    )
    found = read({**document, "status": {"phase": "Pending"}})
    assert replace(found, notes=()) == replace(read(pod()), notes=())
    assert found.notes == (
        (
            f"{HERE}: image, imagePullPolicy, livenessProbe, ports, tty, volumeMounts, hostIPC, schedulerName, "
            "serviceAccountName, topologySpreadConstraints, volumes"
        ),
    )


def test_rules_for_nodes_are_among_them_and_what_is_left_empty_is_not():
    document = pod(container(image="", volumeMounts=[]), nodeSelector={"gpu": "a100"}, affinity={}, tolerations=None)
    assert read(document).notes == (f"{HERE}: nodeSelector",)
    assert read(pod(container(image=""))).notes == ()


def test_a_selector_and_a_toleration_of_a_tag_have_an_effect_here():
    tolerations = [{"key": "swell.dev/tag", "value": "big"}]
    tagged = pod(container(image=""), nodeSelector={"swell.dev/tag": "big"}, tolerations=tolerations)
    assert read(tagged).notes == ()
    mixed = pod(container(image=""), nodeSelector={"swell.dev/tag": "big", "gpu": "a100"}, tolerations=tolerations)
    assert read(mixed).notes == (f"{HERE}: nodeSelector",)


def test_pods_that_say_the_same_are_told_once():
    document = pytorchjob(replicas(1), replicas(2))
    assert read(document).notes == (f"{HERE}: image",)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            pod(container(comand=["x"])),
            "spec.containers[0] has no field 'comand'; did you mean 'command'? (used here: n",
        ),
        (
            pod(restartpolicy="Never"),
            "spec has no field 'restartpolicy'; did you mean 'restartPolicy'? (used here: con",
        ),
        (pod(frobnicate=1), "spec has no field 'frobnicate'; (used here: containers, restartPolicy, activeDeadline"),
        (
            {**pod(), "specs": {}},
            "the manifest has no field 'specs'; did you mean 'spec'? (used here: apiVersion, kind,",
        ),
        (
            pod(metadata={"nmae": "x"}),
            "metadata has no field 'nmae'; did you mean 'name'? (used here: name, generateName",
        ),
        (
            {**pod(), "kind": "pod"},
            "nothing here can run 'apiVersion: v1, kind: pod'; did you mean 'apiVersion: v1, kind: Pod'?",
        ),
    ],
)
def test_a_misspelt_field_is_refused_and_the_right_one_named(document, said):
    assert refusal(document).startswith(said)


# -- names ---------------------------------------------------------------------------------------------------------


def test_a_generated_name_is_made_from_its_beginning():
    assert read(pod(metadata={"generateName": "train-"})).name == "train"
    assert read(pod(metadata={"generateName": "train-", "name": "mine"})).name == "mine"


def test_a_pod_without_a_name_has_the_callers_or_is_refused():
    assert read_document(pod(metadata={}), Context(workdir="/", name="given")).name == "given"
    said = "metadata: neither name nor generateName is given; write name: train"
    assert refusal(pod(metadata={})) == said
    document = pod()
    document["metadata"] = None
    assert refusal(document) == said


@pytest.mark.parametrize("name", ["", "a/b", "x" * 64, "12", ["a"], {"a": 1}, True, 5])
def test_a_name_that_swell_cannot_use_is_refused(name):
    assert refusal(pod(metadata={"name": name})).startswith("metadata: name ")
    assert refusal(pod(metadata={"generateName": name})).startswith("metadata: ")


def test_the_context_is_the_callers():
    assert read_document(pod(), CONTEXT).umask == 0o027
