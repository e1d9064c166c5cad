"""What a container of a Pod asks for: command, variables, resources, and what annotations say of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.manifests import read_document
from swell.model.job import ResizeMode
from swell.model.resources import Resources

from .kubernetes import CONTEXT, GPU, container, gpus, pod, read, refusal, width

# -- command, variables, folder ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"args": ["--epochs", "3"]}, {"command": []}, {"command": None}])
def test_a_container_without_a_command_is_refused_because_its_image_is_not_run(fields):
    document = pod({"name": "main", "image": "pytorch:2", **fields})
    assert refusal(document) == (
        "spec.containers[0] has no command: processes, not containers, run on this machine, so the entry point of "
        "'pytorch:2' is not known here; write it out, as in command: [python, train.py]"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": "python train.py"}, "command must be a list of words, but is text: write [sh, -c, 'python train."),
        ({"command": {"a": "b"}}, "command must be a list of words, as in [python, train.py], but is a mapping"),
        ({"command": [""]}, "command: the first word, the program, is empty"),
        ({"command": ["a", ["b"]]}, "command: every word must be text, but one is a list: ['b']; quote it"),
        ({"command": ["a\0"]}, "command: a word holds a null character, which no program can be given"),
        ({"args": "--x"}, "args must be a list, but is '--x'"),
        ({"args": [None]}, "args: every word must be text, but one is empty; quote it"),
        ({"args": ["\ud800"]}, "args: a word is not valid Unicode text"),
        (
            {"workingDir": 5},
            "workingDir must be a folder's path, but is a number: 5; leave it out for the caller's own",
        ),
        ({"workingDir": ["x"]}, "workingDir must be a folder's path, but is a list"),
    ],
)
def test_words_and_folders_that_cannot_be_meant_are_refused_with_the_place(fields, said):
    assert refusal(pod(container(**fields))).startswith(f"spec.containers[0].{said}")


def test_a_relative_folder_is_found_from_where_the_caller_stood():
    assert read(pod(container(workingDir="runs"))).workdir == "/home/ann/runs"


def test_of_two_variables_with_one_name_the_last_counts_and_none_is_empty():
    env = [{"name": "A", "value": 1}, {"name": "A", "value": 2}, {"name": "B"}]
    assert read(pod(container(env=env))).roles[0].env == (("A", "2"), ("B", ""))


def test_a_variable_may_be_the_objects_name_or_namespace():
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}},
        {"name": "SPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "BOTH", "value": "$(SPACE)/$(NAME)"},
    ]
    spec = read(pod(container(env=env), metadata={"name": "a", "namespace": "fms-tuning"}))
    assert dict(spec.roles[0].env) == {"NAME": "a", "SPACE": "fms-tuning", "BOTH": "fms-tuning/a"}
    assert dict(read(pod(container(env=env))).roles[0].env)["SPACE"] == "default"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"A": "b"}, " must be a list, but is a mapping"),
        ("A=b", " must be a list, but is 'A=b'"),
        (["A=b"], "[0] must be a mapping of names to values, but is 'A=b'"),
        ([{"value": "b"}], "[0].name must be text, but is empty"),
        ([{"name": 5, "value": "b"}], "[0].name must be text, but is a number: 5"),
        ([{"name": "", "value": "b"}], "[0]: env: '' cannot be a variable's name; write NAME: value"),
        ([{"name": "A=B"}], "[0]: env: 'A=B' cannot be a variable's name; write NAME: value"),
        ([{"name": "A"}, {"name": "B", "value": ["b"]}], "[1]: env: the value of B must be text, but is a list: ['b']"),
        ([{"name": "A", "value": "\0"}], "[0]: env: the value of A holds a null character"),
        ([{"name": "A", "vlaue": "b"}], "[0] has no field 'vlaue'; did you mean 'value'? (used here: name, value, "),
        ([{"name": "A", "value": "b", "valueFrom": {}}], "[0]: both value and valueFrom are given; keep one"),
        ([{"name": "A", "valueFrom": "x"}], "[0]: valueFrom must be a mapping of names to values, but is 'x'"),
        (
            [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            (
                "[0]: valueFrom.secretKeyRef: A comes from a Secret, and this machine has none; give it with --env "
                "A=…, set A in your shell (a job has its caller's environment), or write a value"
            ),
        ),
        (
            [{"name": "A", "valueFrom": {"configMapKeyRef": {}}}],
            "[0]: valueFrom.configMapKeyRef: A comes from a ConfigMap, and this machine has none; give it with --env",
        ),
        ([{"name": "A", "valueFrom": {"fieldRef": []}}], "[0]: valueFrom.fieldRef must be a mapping"),
        (
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "[0]: valueFrom.fieldRef can be metadata.name or metadata.namespace, but is 'status.podIP'; write a",
        ),
        ([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": ["x"]}}}], "[0]: valueFrom.fieldRef can be metadata"),
    ],
)
def test_a_variable_that_is_not_known_here_is_refused_with_the_place(env, said):
    assert refusal(pod(container(env=env))).startswith(f"spec.containers[0].env{said}")


def test_variables_from_a_secret_or_config_map_as_a_whole_are_refused():
    said = refusal(pod(container(envFrom=[{"secretRef": {"name": "s"}}])))
    assert said.startswith("spec.containers[0].envFrom takes variables from a ConfigMap or Secret, and there are none")
    assert read(pod(container(envFrom=[]))) == read(pod())


# -- resources -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({}, Resources(1000, 0, 0)),
        (None, Resources(1000, 0, 0)),
        ({"requests": None, "limits": {}}, Resources(1000, 0, 0)),
        ({"requests": {"cpu": "250m"}, "limits": {"cpu": "2"}}, Resources(250, 0, 0)),
        ({"limits": {"cpu": "2", "memory": "512M"}}, Resources(2000, 489, 0)),
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}, Resources(2000, 1024, 0)),
        ({"requests": {"cpu": 0}}, Resources(0, 0, 0)),
        ({"requests": {"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}}, Resources(1000, 0, 0)),
    ],
)
def test_requests_count_and_a_limit_where_there_is_no_request(resources, found):
    assert read(pod(container(resources=resources))).roles[0].resources == found


@pytest.mark.parametrize(
    ("requests", "limits", "found"),
    [
        (2, 4, ("gpus", 2, 4)),
        ("2", "4", ("gpus", 2, 4)),
        (2, 2, ("gpus", 2, 2)),
        (None, 3, ("gpus", 3, 3)),
        (3, None, ("gpus", 3, 3)),
        (0, 0, ("tasks", 1, 1)),
        (None, None, ("tasks", 1, 1)),
    ],
)
def test_requests_are_the_least_gpus_and_limits_the_most(requests, limits, found):
    spec = read(pod(container(**gpus(requests, limits))))
    assert width(spec) == found
    assert spec.roles[0].resources.gpus == (found[1] if found[0] == "gpus" else 0)


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ([], " must be a mapping of names to values, but is a list: []"),
        ({"requests": [1]}, ".requests must be a mapping of names to values, but is a list: [1]"),
        ({"request": {}}, " has no field 'request'; did you mean 'requests'? (used here: requests, limits)"),
        (
            {"claims": [{"name": "gpu"}]},
            ".claims asks for devices by claim, which this machine does not have; ask for ",
        ),
        ({"limits": {"nvidia.com/gpus": 1}}, ".limits has no field 'nvidia.com/gpus'; did you mean 'nvidia.com/gpu'? "),
        ({"limits": {"rdma/hca": 1}}, ".limits has no field 'rdma/hca'; (used here: cpu, memory, nvidia.com/gpu)"),
        ({"limits": {5: 1}}, ".limits has the field 5, which is no text; quote it"),
        ({"limits": {GPU: -1}}, ".limits: nvidia.com/gpu: '-1' is below zero; nothing can be asked for less than 0"),
        (
            {"requests": {GPU: "0.5"}},
            ".requests: nvidia.com/gpu: '0.5' is a part of a GPU; they are given whole: write ",
        ),
        (
            {"requests": {GPU: 10**30}},
            ".requests: nvidia.com/gpu: '1000000000000000000000000000000' is more GPUs than any job may have",
        ),
        (
            {"requests": {GPU: "100001"}},
            ".requests: nvidia.com/gpu: '100001' is more GPUs than any job may have (100000)",
        ),
        ({"requests": {GPU: True}}, ".requests: nvidia.com/gpu must be a number or text, but is true/false: True"),
        ({"requests": {GPU: [1]}}, ".requests: nvidia.com/gpu must be a number or text, but is a list: [1]"),
        (
            {"requests": {GPU: 4}, "limits": {GPU: 2}},
            ": nvidia.com/gpu: requests 4 is above limits 2; the request is the",
        ),
        (
            {"requests": {GPU: 0}, "limits": {GPU: 2}},
            ": nvidia.com/gpu from 0 to 2: a range must start at 1 or more; write 1 ",
        ),
        (
            {"requests": {"cpu": 4}, "limits": {"cpu": "500m"}},
            ": cpu: requests 4 is above limits 500m; the request is t",
        ),
        ({"requests": {"cpu": "many"}}, ".requests: cpu: 'many' is not a quantity; Kubernetes writes 500m, 1.5, 2Gi, "),
        ({"requests": {"memory": {"a": 1}}}, ".requests: memory must be a number or text, but is a mapping"),
        (
            {"requests": {"memory": "8GiB"}},
            ".requests: memory: '8GiB' is not a quantity; Kubernetes writes 500m, 1.5, ",
        ),
    ],
)
def test_resources_that_cannot_be_meant_are_refused_with_the_place(resources, said):
    assert refusal(pod(container(resources=resources))).startswith(f"spec.containers[0].resources{said}")


# -- annotations of genai's manager --------------------------------------------------------------------------------


def noted(document: dict, **annotations: object) -> dict:
    return {**document, "metadata": {"name": "resnet", "annotations": annotations}}


@pytest.mark.parametrize("resources", [{}, gpus(1, 1), gpus(2), gpus(None, 3), gpus(1, 3)])
def test_the_annotated_range_counts_where_the_container_gives_none_of_its_own(resources):
    spec = read(noted(pod(container(**resources)), replicas="1", request="1", limit="3", podtype="sample"))
    assert width(spec) == ("gpus", 1, 3)
    assert spec.roles[0].resources.gpus == 1


def test_an_annotated_number_is_a_range_of_one():
    assert width(read(noted(pod(), request="2", limit="2"))) == ("gpus", 2, 2)
    assert width(read(noted(pod(), request="0", limit="0"))) == ("tasks", 1, 1)


@pytest.mark.parametrize(
    ("resources", "asked"), [(gpus(2, 4), "2..4"), (gpus(1, 2), "1..2"), (gpus(4), "4"), (gpus(0, 0), "0")]
)
def test_annotations_and_containers_that_contradict_each_other_are_refused_with_both(resources, asked):
    assert refusal(noted(pod(container(**resources)), request="1", limit="3")) == (
        f"metadata.annotations ask for 1..3 GPUs (request, limit), but spec.containers for {asked}; "
        "make them the same, or leave the annotations out"
    )


def test_gpus_are_summed_over_containers_before_they_are_compared_with_the_annotations():
    two = pod(container(**gpus(1)), container(name="b", **gpus(2)))
    assert width(read(noted(two, request="3", limit="3"))) == ("tasks", 1, 1)
    assert "for 3; make them the same" in refusal(noted(two, request="1", limit="2"))


def test_an_annotated_range_goes_to_the_one_container_that_has_gpus():
    spec = read(noted(pod(container(name="side"), container(**gpus(2))), request="2", limit="4"))
    assert width(spec) == ("gpus", 2, 4)
    assert [role.resources.gpus for role in spec.roles] == [0, 2]


@pytest.mark.parametrize("resources", [{}, gpus(1)])
def test_an_annotated_range_that_could_be_of_either_container_is_refused(resources):
    two = pod(container(name="a", **resources), container(name="b", **resources))
    assert refusal(noted(two, request="2", limit="4")) == (
        "metadata.annotations ask for 2..4 GPUs (request, limit), but not for which of the containers 'a', 'b'; "
        "write requests and limits of nvidia.com/gpu there instead"
    )


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"request": "1"}, " has 'request' without 'limit'; a range of GPUs needs both"),
        ({"limit": "1"}, " has 'limit' without 'request'; a range of GPUs needs both"),
        ({"request": "4", "limit": "1"}, ": request 4 is above limit 1; the request is the least"),
        (
            {"request": "0", "limit": "1"},
            ": request 0 and limit 1: a range must start at 1 or more; write request: '1'",
        ),
        ({"request": "-1", "limit": "1"}, ": request is -1; it must be from 0 to 100000"),
        ({"request": "1", "limit": "1.5"}, ": limit must be a whole number from 0 to 100000, but is '1.5'"),
        ({"request": "1", "limit": "9" * 30}, ": limit must be a whole number from 0 to 100000, but is '99999"),
        ({"request": True, "limit": "1"}, ": request must be a whole number from 0 to 100000, but is true/false: True"),
        ({"replicas": "2"}, ": replicas is 2, but the manifest has 1 pod; make them the same, or leave the annotation"),
        ({"replicas": "0"}, ": replicas is 0; it must be from 1 to 100000"),
        ({"replicas": ["1"]}, ": replicas must be a whole number from 1 to 100000, but is a list: ['1']"),
        ({"swell.dev/epochs": "0"}, ": swell.dev/epochs is 0; it must be from 1 to 1000000000"),
        ({"swell.dev/epochs": "many"}, ": swell.dev/epochs must be a whole number from 1 to 1000000000, but is 'many'"),
        ({"swell.dev/priority": "high"}, ": swell.dev/priority must be a whole number from -1000000 to 1000000, but"),
        (
            {"swell.dev/resize": "nevr"},
            ": swell.dev/resize must be one of at-checkpoint, immediate, either, never, but is '",
        ),
        ({"swell.dev/time": "soon"}, ": swell.dev/time: 'soon' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12"),
        ({"swell.dev/checkpoints": 3}, ": swell.dev/checkpoints must be a folder's path, but is a number: 3; leave it"),
        ({"swell.dev/epoch": "3"}, " has no field 'swell.dev/epoch'; did you mean 'swell.dev/epochs'? (known: swell."),
    ],
)
def test_an_annotation_that_cannot_be_meant_is_refused(annotations, said):
    assert refusal(noted(pod(), **annotations)).startswith(f"metadata.annotations{said}")


def test_annotations_of_swell_say_what_kubernetes_has_no_field_for_and_win_over_its_fields():
    document = pod(activeDeadlineSeconds=60, priority=3)
    own = {"swell.dev/epochs": "10", "swell.dev/priority": -5, "swell.dev/resize": "immediate", "swell.dev/time": "2h"}
    spec = read(noted(document, **own, **{"swell.dev/checkpoints": "/data/resnet"}))
    assert (spec.epochs, spec.priority, spec.resize, spec.time_limit_s) == (10, -5, ResizeMode.IMMEDIATE, 7200.0)
    assert spec.checkpoints == "/data/resnet"


def test_other_annotations_and_labels_mean_nothing_here():
    metadata = {
        "name": "resnet",
        "labels": {"app": "x"},
        "annotations": {"kubectl.kubernetes.io/x": ["y"], "requests": "9"},
    }
    assert read(pod(metadata=metadata)) == read(pod())


def from_a_secret(**reference: object) -> dict[str, object]:
    return {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token", **reference}}}


def test_a_variable_from_a_secret_is_that_of_the_callers_environment():
    """A manifest that runs on a cluster was refused on a machine, where whoever submits it has the same variable."""
    document = pod(container(env=[{"name": "HF_TOKEN", "value": "old"}, from_a_secret(), {"name": "A", "value": "b"}]))
    spec = read_document(document, replace(CONTEXT, variables={"HF_TOKEN": "never looked at"}.keys()))
    assert spec.roles[0].env == (("A", "b"),)
    assert spec.notes[1:] == ("HF_TOKEN is that of your own environment: this machine has no Secrets and ConfigMaps",)


def test_one_that_is_optional_may_be_missing():
    assert read(pod(container(env=[from_a_secret(optional=True)]))).roles[0].env == ()


def test_a_reference_with_a_field_that_nobody_knows_is_refused():
    said = refusal(pod(container(env=[from_a_secret(namespace="x")])))
    assert said.startswith("spec.containers[0].env[0]: valueFrom.secretKeyRef has no field 'namespace'")
