"""How do things look on a terminal, in a pipe, in JSON?"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swell.client import Job

COLOURS = {
    "running": "32",
    "succeeded": "32",
    "failed": "31",
    "cancelled": "33",
    "queued": "36",
    "held": "33",
    "starting": "34",
    "stopping": "33",
}


def print_document(document: object, output: str) -> None:
    if output == "yaml":
        import yaml

        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
    else:
        print(json.dumps(document, indent=2))


def use_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, state: str) -> str:
    return f"\x1b[{COLOURS[state]}m{text}\x1b[0m" if use_colour() and state in COLOURS else text


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, states: int | None = None) -> None:
    """Aligned columns; on a terminal the last one is cut at its edge, in a pipe nothing is."""
    for line in table_lines(header, rows, states=states):
        print(line)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]], *, states: int | None = None) -> list[str]:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = []
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if edge is not None:
            room = max(10, edge - sum(widths[:-1]) - 2 * (len(widths) - 1))
            cells[-1] = cells[-1].rstrip() if len(cells[-1].rstrip()) <= room else cells[-1][: room - 1] + "…"
        if states is not None and row is not header:
            cells[states] = paint(cells[states], row[states])
        lines.append("  ".join(cells).rstrip())
    return lines


def duration(seconds: float) -> str:
    """'45s', '12m', '3h05m', '2d4h': short enough for a column."""
    seconds = max(0, int(seconds))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600}h"


def moment(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def ran_for(job: dict[str, Any]) -> str:
    start = moment(job["started_at"])
    if start is None:
        return "-"
    return duration((moment(job["ended_at"]) or time.time()) - start)


def until(document: dict[str, Any]) -> str:
    """When something that expires does, for a column."""
    return "expired" if document["is_expired"] else f"{document['expires_at'][:16].replace('T', ' ')} UTC"


def say(text: str) -> None:
    """About the job, not from it: standard error, so that output can be piped."""
    print(f"swell: {text}", file=sys.stderr, flush=True)


def say_end(job: Job) -> None:
    """How it ended, unless that was well."""
    reason = job.document["reason"]
    if job.state != "succeeded" and reason:
        say(f"job {job.id} {job.state}: {reason['message']}")


def say_lines(lines: dict[str, str]) -> None:
    """'name:  text', one below the other."""
    for name, text in lines.items():
        print(f"{name + ':':<12}{text}")


def why_text(job: dict[str, Any]) -> str:
    reason = job["reason"]
    return f"{reason['code']}: {reason['message']}" if reason else ""


def event_detail(event: dict[str, Any]) -> str:
    """'width=2 nodes=a,b': what an event says beside its kind."""
    given = {key: value for key, value in event["detail"].items() if value is not None}
    return " ".join(
        f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}" for key, value in given.items()
    )
