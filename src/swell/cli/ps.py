"""`swell ps`"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import output_option, with_client

if TYPE_CHECKING:
    from swell.client import Client

ROWS = 50
WATCH_S = 2.0
STATES = ("running", "starting", "stopping", "queued", "held", "succeeded", "failed", "cancelled")


@click.command("ps")
@click.option("-a", "--all", is_flag=True, help="Also jobs that ended more than a day ago.")
@click.option("-u", "--user", metavar="USER", help="This user's.  [default: yours]")
@click.option("--all-users", is_flag=True, help="Everybody's; of others what a queue shows.")
@click.option("-w", "--watch", is_flag=True, help="Show it again every 2 seconds.")
@click.option("--limit", type=click.IntRange(1), help=f"At most so many.  [default: {ROWS} in tables]")
@output_option
@with_client
def command(client: Client, output: str, watch: bool, limit: int | None, **which: Any) -> int:
    """List jobs: active ones first, then those that ended in the last day.

    With -o json or yaml all of them are printed; docs/json.md lists the fields.
    """
    if output == "json" and limit is None and not watch:
        _print_all(client, which)
        return 0
    rows = limit or (ROWS if output in ("table", "wide") else None)
    while True:
        answer = _fetch(client, which, rows)
        if watch:
            print("\x1b[H\x1b[2J", end="")
        _print(answer, output, of_all=which["all_users"])
        if not watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_S)


def _fetch(client: Client, which: dict[str, Any], limit: int | None) -> dict[str, Any]:
    from swell.client.connection import path

    answer: dict[str, Any] = client.connection.json("GET", path("jobs", **which, limit=limit))
    return answer


def _print_all(client: Client, which: dict[str, Any]) -> None:
    """One job per line, as it comes: reading and writing ten thousand of them again would cost a second."""
    from swell.client.connection import path

    lines = client.connection.raw("GET", path("jobs", **which, lines=True)).data.rstrip(b"\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(b"[" + lines.replace(b"\n", b",\n ") + b"]\n")


def _print(answer: dict[str, Any], output: str, *, of_all: bool) -> None:
    from swell.cli.printing import print_document, print_table

    jobs = answer["jobs"]
    if output == "json":
        print("[" + ",\n ".join(map(json.dumps, jobs)) + "]")
    elif output == "yaml":
        print_document(jobs, output)
    elif not jobs:
        print("no jobs; run one with: swell run -- COMMAND")
        print(others_line(answer), end="")
    else:
        header, rows = wide_rows(jobs) if output == "wide" else short_rows(jobs, of_all=of_all)
        print_table(header, rows, states=header.index("STATE"))
        print(states_line(answer["states"]))
        if answer["not_shown"]:
            print(f"({answer['not_shown']} more; --limit N shows more, -o json all)")
        print(others_line(answer), end="")


def others_line(answer: dict[str, Any]) -> str:
    """What came by kubectl is its namespace's: without a word, who administers the server would not know of it."""
    count = answer.get("of_others", 0)  # a server of before does not say
    return f"({count} job{'' if count == 1 else 's'} of others: swell ps --all-users)\n" if count else ""


def states_line(states: dict[str, int]) -> str:
    """'3 running, 120 queued': all that there are, also those beyond the limit."""
    return ", ".join(f"{states[state]} {state}" for state in STATES if state in states)


def short_rows(jobs: list[dict[str, Any]], *, of_all: bool = False) -> tuple[list[str], list[list[str]]]:
    """Users have a column when all of them were asked for, progress when any job reports it: terminals are narrow."""
    from swell.cli.printing import duration, moment, ran_for, why_text

    now = time.time()
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "ID": lambda job: str(job["id"]),
        "NAME": lambda job: str(job["name"]),
        "USER": lambda job: str(job["user"]),
        "STATE": lambda job: str(job["state"]),
        "PRIO": lambda job: str(job["priority"]),
        "WIDTH": _width,
        "TASKS": lambda job: _tasks(job["tasks"]),
        "EPOCHS": lambda job: _epochs(job["progress"]),
        "LEFT": lambda job: _left(job, now),
        "AGE": lambda job: duration(now - (moment(job["submitted_at"]) or now)),
        "RAN": ran_for,
        "REASON": why_text,
    }
    if not of_all:
        del columns["USER"]
    if all(job["progress"]["epochs_done"] is None for job in jobs):
        del columns["EPOCHS"], columns["LEFT"]
    return list(columns), [[column(job) for column in columns.values()] for job in jobs]


def wide_rows(jobs: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    header, rows = short_rows(jobs, of_all=True)
    extra = [
        [
            ",".join(job["nodes"]) or "-",
            "-" if job["exit_code"] is None else str(job["exit_code"]),
            f"{job['resizes']}/{job['preemptions']}",
            f"{job['lost_gpu_seconds']:.0f}",
        ]
        for job in jobs
    ]
    wide = [[*row[:-1], *more, row[-1]] for row, more in zip(rows, extra, strict=True)]
    return [*header[:-1], "NODES", "EXIT", "RESIZED/PREEMPTED", "LOST", header[-1]], wide


def _width(job: dict[str, Any]) -> str:
    low, high = job["width_min"], job["width_max"]
    return f"{job['width']}/{low}" if low == high else f"{job['width']}/{low}..{high}"


def _epochs(progress: dict[str, Any]) -> str:
    done, total = progress["epochs_done"], progress["epochs_total"]
    if done is None:
        return "-"
    return f"{done:g}" if total is None else f"{done:g}/{total:g}"


def _left(job: dict[str, Any], now: float) -> str:
    from swell.cli.printing import duration, moment

    ends_at = moment(job["progress"]["expected_end_at"])
    return "-" if ends_at is None or job["state"] != "running" else duration(ends_at - now)


def _tasks(tasks: dict[str, int]) -> str:
    done = tasks["succeeded"] + tasks["failed"]
    return f"{done}/{tasks['total']}" + (f" ({tasks['failed']} failed)" if tasks["failed"] else "")
