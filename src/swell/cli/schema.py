"""`swell schema` and `swell explain`"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import client_for_jobs, state_option

if TYPE_CHECKING:
    from swell.client.client import Client


INDEX = re.compile(r"\[[0-9]*\]$")  # of a list, as refusals name its entries


@click.command("schema")
@click.argument("kind", required=False)
@state_option
def schema(kind: str | None, state: str | None) -> int:
    """Print the JSON Schema of a kind of manifest; without KIND list the kinds.

    \b
    swell schema job > job.schema.json
    """
    client = client_for_jobs(state)
    if kind is None:
        _print_kinds(client)
    else:
        print(json.dumps(client.kind(kind), indent=2))
    return 0


@click.command("explain")
@click.argument("path", metavar="KIND[.FIELD]...", required=False)
@state_option
def explain(path: str | None, state: str | None) -> int:
    """Explain a kind of manifest or one of its fields.

    \b
    swell explain job.spec.gpus
    swell explain jobset.spec.replicatedJobs
    """
    client = client_for_jobs(state)
    if path is None:
        _print_kinds(client)
        return 0
    kind, *fields = path.split(".")
    found = client.kind(kind)
    title = found["title"]
    for name in fields:
        found = _field(found, INDEX.sub("", name))
    print(title)
    if fields:
        print(f"field: {'.'.join(fields)}")
    for line in _lines(found):
        print(line)
    return 0


def _print_kinds(client: Client) -> None:
    from swell.cli.printing import print_table

    print_table(["KIND", "APIVERSION"], [[one["kind"], one["apiVersion"]] for one in client.kinds()])


def _inner(schema: dict[str, Any]) -> dict[str, Any]:
    """What is said of the fields of a mapping, of each mapping of a list, or of each named mapping."""
    more = schema.get("items") or schema.get("additionalProperties")
    return schema if "properties" in schema or not isinstance(more, dict) else more


def _field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    from swell.errors import Rejected

    known = _inner(schema).get("properties", {})
    if name not in known and isinstance(schema.get("additionalProperties"), dict):
        return _inner(schema)  # of fields that have names of their own, any
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; its fields: {', '.join(known)}" if known else ""
        raise Rejected(f"there is no field {name!r} here{hint}")
    found: dict[str, Any] = known[name]
    return found


def _lines(schema: dict[str, Any]) -> list[str]:
    inner = _inner(schema).get("properties", {})
    said = schema.get("description")
    lines = [said] if said else []
    if not inner:
        return lines or ["Used as Kubernetes, or the kind's own controller, documents it."]
    width = max(len(name) for name in inner)
    return [*lines, *(f"  {name:{width}}  {_short(one)}".rstrip() for name, one in inner.items())]


def _short(schema: dict[str, Any]) -> str:
    kinds = {"array": "a list", "object": "fields"}
    return str(schema.get("description") or kinds.get(str(schema.get("type")), schema.get("const", "")))
