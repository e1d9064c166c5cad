"""JSON schemas for kubeconform, made from what a real API server says of its own kinds: none can be downloaded here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: Go types whose JSON is wider than the description says.
WIDER = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}


def write_schemas(description: dict[str, Any], folder: Path) -> str:
    """One file for each kind; the pattern by which kubeconform finds them."""
    definitions = {name: WIDER.get(name) or _strict(schema) for name, schema in description["definitions"].items()}
    for name, schema in description["definitions"].items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            group = kind["group"].partition(".")[0]
            words = [kind["kind"].lower(), *([group] if group else []), kind["version"]]
            document = {"allOf": [{"$ref": f"#/definitions/{name}"}], "definitions": _needed(definitions, name)}
            (folder / f"{'-'.join(words)}.json").write_text(json.dumps(document))
    return f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A field that nobody knows is a misspelt one."""
    return {**schema, "additionalProperties": False} if "properties" in schema else schema


def _needed(definitions: dict[str, Any], name: str) -> dict[str, Any]:
    """Those that one refers to, however far."""
    found: dict[str, Any] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = definitions[name]
            waiting += _references(definitions[name])
    return found


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].removeprefix("#/definitions/")] if isinstance(value.get("$ref"), str) else []
        return own + [name for inner in value.values() for name in _references(inner)]
    return [name for inner in value for name in _references(inner)] if isinstance(value, list) else []
