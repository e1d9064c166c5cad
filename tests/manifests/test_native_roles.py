"""Our own notation with several kinds of tasks, and with secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.manifests import native_objects, read_manifests
from swell.model.job import Secret

from .kubernetes import CONTEXT, read, refusal, width

CLUSTER = replace(CONTEXT, on_cluster=True)


def job(*roles: Any, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "swell/v1", "kind": "Job", "spec": {"roles": list(roles), **spec}}


def role(name: str = "worker", **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": ["train.py"], **fields}


def test_roles_are_ranks_in_their_order_with_their_own_commands_sizes_and_variables():
    spec = read(
        job(
            role("reader", tasks="2..4", cpus="0.5", memory="1GiB", env={"A": "b"}),
            role("trainer", command=["fit"], gpus=2, tasks=3),
            time="1h",
            env={"C": "d"},
        )
    )
    assert [(one.name, one.command, one.count, one.env) for one in spec.roles] == [
        ("reader", ("train.py",), 2, (("A", "b"),)),
        ("trainer", ("fit",), 3, ()),
    ]
    first, second = (one.resources for one in spec.roles)
    assert (first.cpus_milli, first.memory_mib, first.gpus, second.gpus) == (500, 1024, 0, 2)
    assert (width(spec), spec.env, spec.time_limit_s, spec.name) == (("tasks", 2, 4), (("C", "d"),), 3600.0, "train.py")


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([role(gpus="2..8")], ("gpus", 2, 8)),
        ([role(gpus=2)], ("gpus", 2, 2)),
        ([role("a", gpus="1..4"), role("b", gpus="1..4", tasks=2), role("c")], ("gpus", 1, 4)),
        ([role("a", tasks=2), role("b", tasks=3)], ("tasks", 2, 2)),
    ],
)
def test_a_job_is_elastic_in_one_dimension(roles, expected):
    assert width(read(job(*roles))) == expected


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (job(), "roles has 0 entries; a job has 1 to 64"),
        (job(*[role(f"r{n}") for n in range(65)]), "roles has 65 entries; a job has 1 to 64"),
        (job(role("a"), role("a")), "roles has the name 'a' twice; every role has its own"),
        (job(role(), command=["x"]), "command beside roles: write it in each role; leave it out of spec"),
        (job(role(), array="0-3"), "array beside roles: a job with roles has none; leave it out of spec"),
        (job(role(name="../x")), "roles[0].name '../x' cannot be used"),
        (job(role(gpu=1)), "roles[0] has no field 'gpu'; did you mean 'gpus'?"),
        (job(role(tasks=0)), "roles[0].tasks: 0 is too few; a role has at least 1 task"),
        (job(role(gpus="0..2")), "roles[0].gpus 0..2: a range must start at 1 or more; write 1..2"),
        (job(role("a"), role("b", tasks="1..2")), "roles[1].tasks is 1..2: only the first role may have a range"),
        (job(role("a", tasks="1..2"), role("b", gpus="1..2")), "roles[0].tasks is 1..2 and roles[1].gpus 1..2: a job"),
        (job(role("a", gpus="1..2"), role("b", gpus=1)), "roles[0].gpus is 1..2 and roles[1].gpus 1: the tasks of a"),
        (job(role("a", tasks=100_000), role("b")), "roles have 100001 tasks together; a job has at most 100000"),
    ],
)
def test_roles_that_contradict_each_other_are_refused(document, said):
    assert refusal(document).startswith(said)


TOKEN = {"name": "HF_TOKEN", "secret": "hugging-face", "key": "token"}


@pytest.mark.parametrize("image", [None, "python:3.12"])
def test_a_secret_must_be_in_the_callers_environment_and_its_value_is_nowhere_in_the_job(image):
    document = {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["a"], "secrets": ["HF_TOKEN"]}}
    document["spec"]["image"] = image
    assert refusal(document) == (
        "secrets: HF_TOKEN is not in your environment; set it in your shell, or give it with --env HF_TOKEN=…"
    )
    spec = read(document, replace(CONTEXT, variables={"HF_TOKEN": "s3cret"}))
    assert spec.secrets == (Secret("HF_TOKEN"),)
    assert "s3cret" not in str(spec)


def test_one_line_names_a_secret_of_both_engines():
    """The variable of the caller's environment here, a key of a Secret on Kubernetes."""
    document = {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["a"], "secrets": [TOKEN], "image": "i"}}
    here, there = read(document, replace(CONTEXT, variables={"HF_TOKEN"})), read(document, CLUSTER)
    assert here.secrets == there.secrets == (Secret("HF_TOKEN", "hugging-face", "token"),)
    [pod] = native_objects(there, name="own-7", namespace="lab", width=1, run_as=1000)
    [told] = [one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "HF_TOKEN"]
    assert told == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "token"}}}


def test_the_key_of_a_secret_is_the_variables_name_when_nothing_else_is_said():
    spec = {"command": ["a"], "image": "i", "secrets": [{"name": "HF_TOKEN", "secret": "hub"}]}
    document = {"apiVersion": "swell/v1", "kind": "Job", "spec": spec}
    assert read(document, CLUSTER).secrets == (Secret("HF_TOKEN", "hub", "HF_TOKEN"),)


@pytest.mark.parametrize(
    ("fields", "context", "said"),
    [
        (
            {"image": "i"},
            CLUSTER,
            "secrets[0]: A is of your environment, which a pod does not have; name a Secret of the cluster beside it",
        ),
        ({"secrets": [{"name": "A", "key": "a"}]}, CONTEXT, "secrets[0].key is of a Secret; write secret, its name, "),
        ({"secrets": [{"name": "A", "secret": "../x"}]}, CONTEXT, "secrets[0].secret: '../x' is no name of a Secret"),
        ({"secrets": [{"name": "A", "secret": "x", "key": "a/b"}]}, CONTEXT, "secrets[0].key: 'a/b' is no key of a "),
        ({"secrets": [{"name": "A", "value": "x"}]}, CONTEXT, "secrets[0] has no field 'value'"),
        ({"secrets": [{"secret": "x"}]}, CONTEXT, "secrets[0].name must be text, but is empty"),
        ({"secrets": ["A", {"name": "A"}]}, CONTEXT, "secrets: A is named twice; keep one"),
        ({"secrets": ["A=b"]}, CONTEXT, "secrets[0]: 'A=b' cannot be a variable's name"),
        ({"secrets": ["PATH"], "image": "i"}, CONTEXT, "secrets[0]: PATH is told to an image's runtime in its command"),
        (
            {"secrets": ["A"], "env": {"A": "b"}},
            replace(CONTEXT, variables={"A"}),
            "secrets: A is in env, too; keep one",
        ),
        ({"secrets": ["A"] * 201}, CONTEXT, "secrets has 201 entries; at most 200"),
        ({"secrets": "A"}, CONTEXT, "secrets must be a list, but is 'A'"),
        ({"secrets": [5]}, CONTEXT, "secrets[0] must be a variable's name, as in HF_TOKEN, or {name: "),
    ],
)
def test_secrets_that_nobody_would_have_are_refused(fields, context, said):
    spec = {"command": ["a"], "secrets": ["A"], **fields}
    assert refusal({"apiVersion": "swell/v1", "kind": "Job", "spec": spec}, context).startswith(said)


def test_a_job_of_a_file_may_have_roles():
    text = (
        "apiVersion: swell/v1\nkind: Job\nmetadata: {name: two}\nspec:\n  roles:\n"
        "  - {name: a, command: [x], tasks: 2}\n  - {name: b, command: [y], gpus: 1}\n"
    )
    [found] = read_manifests(text, CONTEXT)
    assert [(one.name, one.count) for one in found.spec.roles] == [("a", 2), ("b", 1)]
