"""`swell ps`"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import output_option, say_if_nobody, with_client
from swell.model.quantity import number_of

if TYPE_CHECKING:
    from swell.client import Client

ROWS = 50
WATCH_S = 2.0
STATES = ("running", "starting", "stopping", "queued", "held", "succeeded", "failed", "cancelled")


@click.command("ps")
@click.option("-a", "--all", is_flag=True, help="Include jobs that ended more than a day ago.")
@click.option("-u", "--user", metavar="USER", help="This user's jobs.  [default: yours]")
@click.option("--all-users", is_flag=True, help="All users' jobs; others' with limited detail.")
@click.option("-w", "--watch", is_flag=True, help="Refresh the list every 2 seconds.")
@click.option("--limit", type=click.IntRange(1), help=f"Show at most N jobs.  [default: {ROWS} in tables]")
@output_option
@with_client
def command(client: Client, output: str, watch: bool, limit: int | None, **which: Any) -> int:
    """List jobs: first the active jobs, then those that ended within the last day.

    -o json and -o yaml print all jobs; docs/json.md lists the fields.
    """
    if output == "json" and limit is None and not watch:
        _print_all(client, which)
        return 0
    rows = limit or (ROWS if output in ("table", "wide") else None)
    while True:
        answer = _fetch(client, which, rows)
        if watch:
            print("\x1b[H\x1b[2J", end="")
        if which["user"] is not None and not answer["jobs"] and output in ("table", "wide"):
            say_if_nobody(client, which["user"], "has no jobs")
            return 0
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
    """Print one job per line without parsing it: to parse and print ten thousand jobs would take a second."""
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
        print("no jobs; to run one: swell run -- COMMAND")
        print(others_line(answer), end="")
    else:
        header, rows = wide_rows(jobs) if output == "wide" else short_rows(jobs, of_all=of_all)
        print_table(header, rows, states=header.index("STATE"))
        print(states_line(answer["states"]))
        if answer["not_shown"]:
            print(f"({answer['not_shown']} more; --limit N shows more, -o json prints all)")
        print(others_line(answer), end="")


def others_line(answer: dict[str, Any]) -> str:
    """Mention the jobs of others: jobs created with kubectl belong to their namespace, and an administrator would
    miss them."""
    count = answer.get("of_others", 0)  # a server of before does not say
    return f"({number_of(count, 'job')} of other users: swell ps --all-users)\n" if count else ""


def states_line(states: dict[str, int]) -> str:
    """The counts of all jobs, including those beyond the limit, as in '3 running, 120 queued'."""
    return ", ".join(f"{states[state]} {state}" for state in STATES if state in states)


def short_rows(jobs: list[dict[str, Any]], *, of_all: bool = False) -> tuple[list[str], list[list[str]]]:
    """Choose the columns: users with --all-users, progress if any job reports it. Terminals are narrow."""
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
    from swell.cli.printing import start_text

    header, rows = short_rows(jobs, of_all=True)
    now = time.time()
    extra = [
        [
            start_text(job, now) or "-",
            ",".join(job["nodes"]) or "-",
            "-" if job["exit_code"] is None else str(job["exit_code"]),
            f"{job['resizes']}/{job['preemptions']}",
            f"{job['lost_gpu_seconds']:.0f}",
        ]
        for job in jobs
    ]
    wide = [[*row[:-1], *more, row[-1]] for row, more in zip(rows, extra, strict=True)]
    return [*header[:-1], "STARTS", "NODES", "EXIT", "RESIZED/PREEMPTED", "LOST", header[-1]], wide


def _width(job: dict[str, Any]) -> str:
    """What a job holds and asked for: tasks of all roles, or GPUs; for an array, tasks at once."""
    held, low, high = job["width"], job["width_min"], job["width_max"]
    if job.get("is_array"):  # a server of before says none of these
        return f"{held}/{high}"
    beside = job.get("tasks_beside", 0)
    span = f"{low + beside}" if low == high else f"{low + beside}..{high + beside}"
    is_of_each = job.get("width_unit") == "gpus" and job["tasks"]["total"] > 1
    return f"{held + beside if held else 0}/{span}" + (" each" if is_of_each else "")


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
    """How many tasks have ended, how many of them failed, and how many Swell stopped."""
    done = tasks["succeeded"] + tasks["failed"]
    told = [f"{tasks[how]} {how}" for how in ("failed", "stopped") if tasks.get(how)]  # a server of before stops none
    return f"{done}/{tasks['total']}" + (f" ({', '.join(told)})" if told else "")
