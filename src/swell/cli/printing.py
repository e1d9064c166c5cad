"""How is output printed on a terminal, in a pipe, and as JSON?"""

from __future__ import annotations

import json
import os
import re
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


#: What a terminal obeys instead of showing it: control characters, and marks that turn the direction of what follows.
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Text from others without control characters, so that it cannot move the cursor. Not applied to the output of
    jobs."""
    return OBEYED.sub(lambda found: _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible_in(document: Any) -> Any:
    """Apply `visible` to all strings of a document, at any depth."""
    if isinstance(document, str):
        return visible(document)
    if isinstance(document, list):
        return [visible_in(one) for one in document]
    if isinstance(document, dict):
        return {visible(str(name)): visible_in(value) for name, value in document.items()}
    return document


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
    """Aligned columns; on a terminal the last column is cut at the edge."""
    for line in table_lines(header, rows, states=states):
        print(line)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]], *, states: int | None = None) -> list[str]:
    rows = [[visible(cell).replace("\n", "\\n") for cell in row] for row in rows]
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


def local(text: str) -> str:
    """A document's time in the local time zone, in seconds; -o json has the exact time."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ran_for(job: dict[str, Any]) -> str:
    """All its attempts together, without the waits between them."""
    start = moment(job["started_at"])
    if start is None:
        return "-"
    if "ran_s" not in job:  # a server of before does not say
        return duration((moment(job["ended_at"]) or time.time()) - start)
    since = moment(job["running_since"])
    return duration(job["ran_s"] + (0.0 if since is None else max(0.0, time.time() - since)))


def until(document: dict[str, Any]) -> str:
    """The expiry time, for a column."""
    return "expired" if document["is_expired"] else f"{document['expires_at'][:16].replace('T', ' ')} UTC"


def say(text: str) -> None:
    """Print a message about a job to standard error, so that the job's output can be piped."""
    print(f"swell: {visible(text)}", file=sys.stderr, flush=True)


def say_end(job: Job) -> None:
    """Print how a job ended, unless it succeeded."""
    reason = job.document["reason"]
    if reason:
        say(f"job {job.id} {job.state}: {reason['message']}")


def say_lines(lines: dict[str, str]) -> None:
    """Print 'name:  text' lines with aligned texts."""
    for name, text in lines.items():
        print(f"{name + ':':<12}{text}")


def start_text(job: dict[str, Any], now: float) -> str:
    """When a queued job is expected to start: 'in 5m00s to 1h20m', 'not before 20m'; empty: nobody can say."""
    expected = job.get("expected_start")  # a server of before does not say
    if expected is None:
        return ""
    earliest = max(0.0, (moment(expected["earliest"]) or now) - now)
    latest = moment(expected["latest"]) if expected["latest"] else None
    return between_text(earliest, None if latest is None else max(0.0, latest - now))


def between_text(earliest_s: float, latest_s: float | None) -> str:
    """Two durations from now on; `latest_s` None: nobody can say."""
    if latest_s is None:
        return f"not before {duration(earliest_s)}"
    if int(latest_s) <= int(earliest_s):
        return "in a moment" if earliest_s < 1 else f"in {duration(earliest_s)}"  # a job that waits never starts now
    return f"in {duration(earliest_s)} to {duration(latest_s)}"


def why_text(job: dict[str, Any]) -> str:
    reason = job["reason"]
    return f"{reason['code']}: {reason['message']}" if reason else ""


def event_detail(event: dict[str, Any]) -> str:
    """The fields of an event, as in 'width=2 nodes=a,b'."""
    given = {key: value for key, value in event["detail"].items() if value is not None}
    return " ".join(
        f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}" for key, value in given.items()
    )
