"""On which line is the field that a refusal speaks of?

Readers name fields by their paths, as in `spec.containers[0].env must be a list`, or in our own notation by the field
of `spec` alone: `gpus: …`. A field that nobody knows is quoted: `spec has no field 'gpu'`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PATH = re.compile(r"[A-Za-z][\w-]*(?:\[[0-9]+\]|\.[A-Za-z][\w/-]*)*")
INNER = re.compile(r"^(?:\.|: )?([A-Za-z][\w./-]*)")
UNKNOWN = re.compile(r"has no field '([^']+)'")
PREFIXES = ("", "spec.", "metadata.")


def line_of(problem: str, lines: Mapping[str, int]) -> int | None:
    """None: the message names no field of the document."""
    found = PATH.match(problem)
    path = next((known for known in _candidates(found[0] if found else "") if known in lines), None)
    unknown = UNKNOWN.search(problem)
    if unknown is not None:
        parent = "" if problem.startswith("the manifest") else path
        inner = None if parent is None else f"{parent}.{unknown[1]}".lstrip(".")
        return lines.get(inner or "", lines.get(path or ""))
    if path is None or found is None:
        return None
    inner_name = INNER.match(problem[len(found[0]) :])  # `metadata.annotations: swell.dev/time: …`
    inner = f"{path}.{inner_name[1]}" if inner_name else path
    return lines.get(inner, lines[path])


def _candidates(path: str) -> list[str]:
    """The path itself and what it is part of, the longest first."""
    cuts = [path, *(path[: one.start()] for one in reversed(list(re.finditer(r"[.\[]", path))))]
    return [f"{prefix}{cut}" for cut in cuts for prefix in PREFIXES if cut]
