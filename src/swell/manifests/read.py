"""Which documents does a file hold, and which reader understands each?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from swell.errors import Rejected, TooLarge
from swell.manifests import native
from swell.manifests.context import Context
from swell.manifests.fields import describe, did_you_mean, take_mapping
from swell.model.job import JobSpec

MANIFEST_BYTES_MAX = 1024 * 1024  # Kubernetes stops at 1.5 MB; a job file is a page of text
ALIASES_MAX = 100  # more is a "billion laughs" bomb, not a job
DEPTH_MAX = 50

Reader = Callable[[dict[str, Any], Context], JobSpec]
READERS: dict[tuple[str, str], Reader] = {("swell/v1", "Job"): native.read}


def read_manifests(text: str, context: Context) -> list[JobSpec]:
    """Every job in a file; a problem in any of them means none is read."""
    size = len(text.encode())
    if size > MANIFEST_BYTES_MAX:
        raise TooLarge(f"the manifest has {size} bytes; at most {MANIFEST_BYTES_MAX} are read: split it")
    documents = [document for document in _parse(text) if document is not None]
    if not documents:
        raise Rejected("the manifest holds no document; start with apiVersion: swell/v1, kind: Job")
    return [_read_numbered(document, context, n, len(documents)) for n, document in enumerate(documents, 1)]


def _read_numbered(document: Any, context: Context, number: int, total: int) -> JobSpec:
    try:
        return read_document(document, context)
    except Rejected as problem:
        if total == 1:
            raise
        raise type(problem)(f"document {number} of {total}: {problem}") from None


def read_document(document: Any, context: Context) -> JobSpec:
    document = take_mapping(document, "the manifest")
    version, kind = document.get("apiVersion"), document.get("kind")
    reader = READERS.get((str(version), str(kind)))
    if reader is None:
        good = [f"apiVersion: {version}, kind: {kind}" for version, kind in READERS]
        asked = f"apiVersion: {version}, kind: {kind}"
        raise Rejected(f"nothing here can run {asked!r}{did_you_mean(asked, good)}")
    return reader(document, context)


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Plain values only, and no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node.value, str) else describe(key_node.value)
            if key in seen and key != "<<":
                raise Rejected(f"line {key_node.start_mark.line + 1}: the field {key!r} is given twice; keep one")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(text: str) -> list[Any]:
    try:
        _refuse_bombs(text)
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise Rejected(f"the manifest is not valid YAML: {where}{problem}") from None


def _refuse_bombs(text: str) -> None:
    """A first pass over the events, before anything is built: aliases and depth are bounded."""
    aliases = depth = 0
    for event in yaml.parse(text, Loader=_Base):
        aliases += isinstance(event, yaml.AliasEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if aliases > ALIASES_MAX:
            raise Rejected(f"the manifest uses more than {ALIASES_MAX} YAML aliases; write the values out")
        if depth > DEPTH_MAX:
            raise Rejected(f"the manifest is nested deeper than {DEPTH_MAX} levels; a job needs five")
