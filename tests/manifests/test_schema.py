"""The schema of a kind knows the fields that its reader knows, and the examples keep to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from swell.errors import Rejected
from swell.manifests.fields import Fields
from swell.manifests.metadata import OBJECT
from swell.manifests.native import SPEC
from swell.manifests.origins import find_origins
from swell.manifests.schema import AICHOR_SHAPE, METADATA, SPECS, DocumentShape, describe_kind, find_described
from swell.manifests.yaml_text import parse_documents
from swell.model.kind import AICHOR, JOB, JOBSET, KINDS, NATIVE_JOB, POD, find_kind

from .test_examples import TABLES

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(
    path.relative_to(EXAMPLES)
    for folder in ("aichor", "kubernetes", "mpi", "native")
    for path in (EXAMPLES / folder).glob("*.yaml")
)


def strangers(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Fields that the schema does not allow."""
    if isinstance(value, list):
        items = schema.get("items", {})
        return [one for number, inner in enumerate(value) for one in strangers(inner, items, f"{path}[{number}]")]
    if not isinstance(value, dict) or "additionalProperties" not in schema:
        return []
    more = schema["additionalProperties"]
    known = schema.get("properties", {})
    found = [f"{path}.{name}" for name in value if name not in known and more is False]
    inner = {name: known.get(name, more if isinstance(more, dict) else {}) for name in value}
    return found + [one for name in value for one in strangers(value[name], inner[name], f"{path}.{name}")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_has_a_schema_that_is_strict(kind):
    schema = describe_kind(kind)
    assert schema["properties"]["kind"] == {"const": kind.name}
    assert schema["additionalProperties"] is schema["properties"]["spec"]["additionalProperties"] is False
    assert strangers({"spec": {"frobnicate": 1}}, schema) == [".spec.frobnicate"]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_every_example_keeps_to_its_schema(file):
    for document in yaml.safe_load_all((EXAMPLES / file).read_text()):
        kind = find_kind(document["apiVersion"], document["kind"])
        assert kind is not None
        assert strangers(document, describe_kind(kind)) == []


def test_our_own_schema_describes_every_field():
    properties = describe_kind(NATIVE_JOB)["properties"]["spec"]["properties"]
    assert set(properties) == set(SPEC)
    assert all(one["description"] for one in properties.values())


def properties(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of a schema, by its path."""
    for name, one in schema.get("properties", {}).items():
        yield f"{above}{name}", one
        yield from properties(one, f"{above}{name}.")
    for more in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(more, dict):
            yield from properties(more, above)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_field_that_has_an_effect_has_a_type_and_is_described(kind):
    """Most fields of foreign documents had neither: `swell explain pod.spec.containers.env` listed three names."""
    found = {path: one for path, one in properties(describe_kind(kind)) if "const" not in one}
    assert len(found) > len(KINDS)
    idle = ("Has no effect", "Refused: ")
    assert [path for path, one in found.items() if not one.get("description", "").strip().endswith(".")] == []
    assert [path for path, one in found.items() if "type" not in one and not one["description"].startswith(idle)] == []


def tables(shape: DocumentShape) -> list[Fields]:
    return [shape.fields, *(fields for one in shape.inner.values() for fields in tables(one))]


def test_every_table_that_a_reader_checks_with_is_in_the_schema_of_a_kind():
    """The fields of `dependsOn`, `podFailurePolicy`, `accelerators.gpu` and others were not explained."""
    found = [fields for shape in (AICHOR_SHAPE, METADATA, *SPECS.values()) for fields in tables(shape)]
    assert [name for name, fields in TABLES.items() if fields is not OBJECT and fields not in found] == []


@pytest.mark.parametrize("shape", [AICHOR_SHAPE, METADATA, *SPECS.values()])
def test_what_is_said_of_fields_is_of_fields_that_there_are(shape):
    def strange(one: DocumentShape) -> list[str]:
        found = sorted(one.words.keys() ^ set(one.fields.used))
        return [*found, *(name for inner in one.inner.values() for name in strange(inner))]

    assert strange(shape) == []


def test_inner_fields_of_foreign_kinds_are_explained():
    found = dict(properties(describe_kind(AICHOR[0])))
    assert found["spec.types.resources.accelerators.gpu.count"] == {
        "type": ["string", "number"],
        "description": "How many; none when left out.",
    }
    assert found["spec.storage.attachExistingPVCs"]["type"] == "array"
    assert found["spec.types.count"]["description"] == "Jobs of this type; 1 when left out."
    of_pod = dict(properties(describe_kind(POD)))
    assert of_pod["spec.containers.env.valueFrom.fieldRef.fieldPath"]["type"] == "string"
    of_set = dict(properties(describe_kind(JOBSET)))
    assert of_set["spec.replicatedJobs.dependsOn.status"]["description"].startswith("Ready")


def test_a_kind_is_found_by_its_name_in_any_case_or_by_its_version():
    assert find_described("job") is NATIVE_JOB
    assert find_described("batch/v1/Job") is JOB
    assert find_described("JOBSET").name == "JobSet"
    with pytest.raises(Rejected, match="there is no kind 'jobsett'; did you mean 'JobSet'"):
        find_described("jobsett")
    with pytest.raises(Rejected, match="there is no kind 'x'; known: AIchorManifest, Job, JobSet, MPIJob, MiniCl"):
        find_described("x")


def test_values_are_traced_to_their_lines():
    [own] = parse_documents(
        "apiVersion: swell/v1\nspec:\n  command: [a]\n  env:\n    A: b\n  gpus: 2\n", lambda _: False
    )
    assert find_origins(own.lines, ["worker"], is_native=True) == {"command": 3, "env": 4, "gpus": 6}
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    swell.dev/time: 1h\nspec:\n"
        "  activeDeadlineSeconds: 5\n  containers:\n  - command: [a]\n    resources:\n      limits:\n"
        "        nvidia.com/gpu: 1\n"
    )
    [foreign] = parse_documents(text, lambda _: False)
    found = {"command": 9, "gpus": 12, "roles": 8, "time": 5}
    of_role = {"roles[0].command": 9, "roles[0].gpus": 12, "roles[0].name": 9}
    assert find_origins(foreign.lines, ["main"], is_native=False) == {**found, **of_role}


def traced(text: str, *roles: str, is_native: bool = False) -> dict[str, int]:
    [found] = parse_documents(text, lambda _: False)
    return {name: line for name, line in find_origins(found.lines, roles, is_native=is_native).items() if "[" in name}


def test_values_of_roles_are_traced_to_the_lines_of_their_own_part():
    own = "spec:\n  roles:\n  - name: a\n    gpus: 1\n  - name: b\n    command: [c]\n"
    lines = {"roles[0].name": 3, "roles[0].gpus": 4, "roles[1].name": 5, "roles[1].command": 6}
    assert traced(own, "a", "b", is_native=True) == lines
    aichor = (
        "spec:\n  command: a\n  types:\n    b:\n      count: 2\n      resources: {cpus: 1}\n"
        "    a:\n      resources:\n        memory: 1\n"
    )
    pinned = "spec:\n  types:\n    a:\n      resources:\n        extraSelectors: {b: c}\n        shmSizeGB: 1\n"
    [found] = parse_documents(pinned + "        extraTolerations: []\n", lambda _: False)
    origins = find_origins(found.lines, ["a"], is_native=False)
    assert {name: line for name, line in origins.items() if "[" not in name} == {
        "roles": 2,
        "nodeSelector": 5,
        "shm": 6,
        "tolerations": 7,
    }
    assert traced(aichor, "a", "b") == {
        "roles[0].command": 2,
        "roles[0].memory": 9,
        "roles[0].name": 7,
        "roles[1].command": 2,
        "roles[1].cpus": 6,
        "roles[1].cpuLimit": 6,
        "roles[1].tasks": 5,
        "roles[1].name": 4,
    }
    torch = "spec:\n  pytorchReplicaSpecs:\n    Worker: {replicas: 2}\n    Master:\n      replicas: 1\n"
    assert traced(torch, "master", "worker") == {
        "roles[0].name": 4,
        "roles[0].tasks": 5,
        "roles[1].name": 3,
        "roles[1].tasks": 3,
    }
