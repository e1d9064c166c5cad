"""`swell show` and `swell why`"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import job_argument, output_option, with_client
from swell.model.quantity import number_of

if TYPE_CHECKING:
    from swell.client import Client

EVENTS_SHOWN = 20
TASKS_SHOWN = 8


@click.command("show")
@job_argument()
@output_option
@with_client
def show(client: Client, job: str, output: str) -> int:
    """Show everything about one job: what it requested, where it ran, what happened.

    If the command contains a script, only its first line is shown; -o json has all of it.
    """
    from swell.cli.printing import print_document, visible_in

    document = client.show(job)
    if output in ("json", "yaml"):
        print_document(document, output)
    else:
        _print(visible_in(document))
    return 0


def _print(job: dict[str, Any]) -> None:
    from swell.cli.printing import event_detail, local, paint, print_table, say_lines, why_text

    spec = job["spec"]
    role = spec["roles"][0]
    lines = {
        "job": f"{job['id']} ({job['name']}) of {job['user']}",
        "state": paint(job["state"], job["state"])
        + (f"   exit code {job['exit_code']}" if job["exit_code"] is not None else ""),
        "reason": why_text(job) or "-",
        "command": command_line(role["command"]),
        "launcher": spec.get("launcher") or "",  # a server of before has none
        "folder": spec["workdir"],
        **_container(spec.get("container")),
        "requests": _asks(spec),
        "tasks": _tasks(job["tasks"]),
        "held by": (job.get("held_by") or "") if job["state"] != "held" else "",  # which says so in its reason
        **_gpus(job),
        **_training(job),
        "submitted": local(job["submitted_at"]),
        "started": local(job["started_at"]) if job["started_at"] else "-",
        "ended": local(job["ended_at"]) if job["ended_at"] else "-",
    }
    say_lines({name: text for name, text in lines.items() if text})
    for note in spec.get("notes", ()):  # a server of before has none
        print(f"note: {note}")
    _print_profile(job["training"])
    for attempt in job["attempts"]:
        print(f"\nattempt {attempt['number']}: width {attempt['width']}, {attempt['outcome'] or 'running'}")
        if attempt["asked"]:
            print(f"  asked to free its resources: {attempt['asked']['cause']}")
        for line in _failed_tasks(attempt) if spec["array"] else _places(attempt):
            print(f"  {line}")
    for line in worker_lines(job.get("workers", ())):  # a server of before does not say
        print(line)
    print()
    rows = [
        [local(event["at"]), event["kind"], event["actor"], event_detail(event)]
        for event in job["events"][-EVENTS_SHOWN:]
    ]
    print_table(["AT", "EVENT", "BY", "DETAIL"], rows)


def worker_lines(workers: Iterable[dict[str, Any]]) -> list[str]:
    """What the workers of a job ran in, and where the log of that is."""
    named = [(f"\nworker {one['node']}: {one['backend']} {one['id']}", one["log"]) for one in workers]
    return [f"{line}, log: {log}" if log else line for line, log in named]


def command_line(argv: list[str]) -> str:
    """The command; of a script within it only the first line, because -o json has all of it."""
    first, *others = shlex.join(argv).split("\n")
    script = max(argv, key=lambda word: word.count("\n"), default="")
    return f"{first} … ({len(script.strip().splitlines())} lines)" if others else first


def _tasks(tasks: dict[str, int]) -> str:
    stopped = f", {tasks['stopped']} stopped by Swell" if tasks.get("stopped") else ""  # a server of before stops none
    return "{succeeded} succeeded, {failed} failed{stopped}, {running} running of {total}".format(
        **{**tasks, "stopped": stopped}
    )


def _gpus(job: dict[str, Any]) -> dict[str, str]:
    """A job's GPU memory limit, use and idle rule; empty for a job without GPUs."""
    memory, idle = job["gpu_memory"], job["idle_policy"]
    lines = {}
    if memory is not None:
        reserved = "whole GPUs" if memory["reserved_mib"] is None else f"{memory['reserved_mib']} MiB reserved"
        level = "" if memory["level"] is None else f" ({memory['level']})"
        measured = [
            f"{memory[key]} MiB {word}"
            for key, word in (("now_mib", "now"), ("peak_mib", "peak"))
            if memory[key] is not None
        ]
        lines["GPU memory"] = ", ".join([reserved + level, *measured])
    if idle is not None:
        lines["idle GPUs"] = f"stopped if no GPU reaches {idle['min_gpu_utilization']} % within {idle['window_s']:g} s"
        if idle["measured"] is False:
            lines["idle GPUs"] += "; not measured on simulated GPUs"
        elif idle["quiet_s"]:
            lines["idle GPUs"] += f"; idle for {idle['quiet_s']:g} s"
    return lines


def _container(container: dict[str, Any] | None) -> dict[str, str]:
    if container is None:
        return {}
    mounts = [f"{one['source']}:{one['target']}{':ro' * one['is_read_only']}" for one in container["mounts"]]
    ports = [f"{host}:{inside}" for host, inside in container["ports"]]
    lines = {"image": container["image"], "mounts": ", ".join(mounts), "ports": ", ".join(ports)}
    return {name: text for name, text in lines.items() if text}


def _training(job: dict[str, Any]) -> dict[str, str]:
    """The progress that a job has reported; empty if it has reported none."""
    training, progress = job["training"], job["progress"]
    if training is None:
        return {}
    total = "?" if progress["epochs_total"] is None else f"{progress['epochs_total']:g}"
    lines = {"epochs": f"{progress['epochs_done']:g} of {total}"}
    if progress["expected_end_at"] and job["state"] == "running":
        lines["epochs"] += f"; expected end {progress['expected_end_at'][:19]}Z"
    checkpoint = training["checkpoint"]
    if checkpoint is not None:
        where = checkpoint["path"] or "in the job's own folder"
        lines["checkpoint"] = f"{number_of(checkpoint['epochs_done'], 'epoch')}, {where}, {checkpoint['at'][:19]}Z"
    if job["metrics"]:
        lines["metrics"] = ", ".join(f"{name} {value:.6g}" for name, value in job["metrics"].items())
    cost = "" if training["restart_s"] is None else f"; a restart takes {training['restart_s']:.1f} s"
    counted = ", ".join(number_of(job[f"{what}s"], what) for what in ("resize", "preemption", "failure"))
    lines["changes"] = f"{counted}; {job['lost_gpu_seconds']:g} GPU-seconds lost{cost}"
    return lines


def _print_profile(training: dict[str, Any] | None) -> None:
    from swell.cli.printing import print_table

    if training is None or not training["profile"]:
        return
    rows = [
        [
            str(one["width"]),
            str(one["nodes"]),
            str(one["epochs"]),
            _or_dash(one["epoch_s"], ".2f"),
            _or_dash(None if one["step_s"] is None else 1000 * one["step_s"], ".2f"),
            _or_dash(one["memory_mib"], ".0f"),
        ]
        for one in training["profile"]
    ]
    print("\nprofile")
    print_table(["WIDTH", "NODES", "EPOCHS", "EPOCH S", "STEP MS", "MEMORY MIB"], rows)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _asks(spec: dict[str, Any]) -> str:
    """For each role, the resources of one task and the number of tasks."""
    from swell.model.quantity import duration_text

    first, *others = spec["roles"]
    told = [_asks_of_role(spec, role, is_first=role is first) for role in (first, *others)]
    if others:
        told = [f"{role['name']}: {text}" for role, text in zip(spec["roles"], told, strict=True)]
    limit = f"; time limit {duration_text(spec['time_limit_s'])}" if spec["time_limit_s"] else ""
    return f"{'; '.join(told)}; priority {spec['priority']}{limit}"


def _asks_of_role(spec: dict[str, Any], role: dict[str, Any], *, is_first: bool) -> str:
    parts = [f"{role['cpus_milli'] / 1000:g} CPU"]
    if role["memory_mib"]:
        parts.append(f"{role['memory_mib']} MiB")
    low, high = spec["width_min"], spec["width_max"]
    span = str(low) if low == high else f"{low}..{high}"
    if spec["dimension"] == "gpus" and (role["gpus"] or is_first):
        parts.append(f"{span} GPU")
    elif role["gpus"]:
        parts.append(f"{role['gpus']} GPU")
    if role["gpu_memory_mib"]:
        whole = spec["dimension"] == "gpus" or role["gpus"]
        size = f"{role['gpu_memory_mib']} MiB"
        parts.append(f"at least {size} of memory per GPU" if whole else f"{size} of one shared GPU")
    each = ", ".join(parts)
    if spec["array"]:
        return each + f" for each of {spec['array']['indices']}, {spec['array']['at_once']} at once"
    count = span if spec["dimension"] == "tasks" and is_first else str(role["count"])
    return each if count == "1" else f"{each} for each of {count} tasks"


def _places(attempt: dict[str, Any]) -> list[str]:
    return [
        f"task {place['task']}: {place['node']}" + (f" on {', '.join(place['devices'])}" if place["devices"] else "")
        for place in attempt["placements"][:TASKS_SHOWN]
    ]


def _exit(task: dict[str, Any]) -> str:
    return "no exit code" if task["exit_code"] is None else f"exit code {task['exit_code']}"


def _failed_tasks(attempt: dict[str, Any]) -> list[str]:
    """One line for each failed task of an array."""
    failed = [task for task in attempt["tasks"] if task["ended_at"] and (task["exit_code"] != 0 or task["cause"])]
    lines = [f"task {task['index']}: {_exit(task)} {task['cause'] or ''}".rstrip() for task in failed]
    return lines[:TASKS_SHOWN] + ([f"and {len(lines) - TASKS_SHOWN} more"] if len(lines) > TASKS_SHOWN else [])


@click.command("why")
@job_argument()
@output_option
@with_client
def why(client: Client, job: str, output: str) -> int:
    """Explain why a job is not running: what it requests, what is true, what to do. docs/reasons.md lists the codes."""
    from swell.cli.printing import print_document, start_text, visible_in

    given = client.job(job).document
    if output in ("json", "yaml"):
        print_document(given["reason"], output)
        return 0
    document = visible_in(given)
    reason = document["reason"]
    print(f"job {document['id']} ({document['name']}) {_verb(document['state'])}", end="")
    if reason is None:
        print(".")
    else:
        print(f": {reason['code']}\n  {reason['message']}")
        if reason["next"]:
            print(f"  next: {reason['next']}")
    if starts := start_text(document, time.time()):
        print(f"  expected to start: {starts}")
    if document["ended_at"] is None:
        shown = visible_in(client.show(document["id"]))
        for note in (*_asked(document["state"], shown["attempts"]), *_widths(document, shown["spec"])):
            print(f"  note: {note}")
    return 0


def _verb(state: str) -> str:
    """How a sentence about a job goes on: 'succeeded', 'was cancelled', 'is queued'."""
    from swell.cli.printing import paint

    helper = {"succeeded": "", "failed": "", "cancelled": "was "}.get(state, "is ")
    return helper + paint(state, state)


def _asked(state: str, attempts: list[dict[str, Any]]) -> Iterator[str]:
    """Why an attempt was asked to free its resources. For a held job, the reason already says it."""
    asked = attempts[-1]["asked"] if attempts and state != "held" else None
    if asked is not None:
        was = "was" if attempts[-1]["ended_at"] else "is"
        yield f"attempt {attempts[-1]['number']} {was} asked to free its resources: {asked['cause']}"


def _widths(document: dict[str, Any], spec: dict[str, Any]) -> Iterable[str]:
    """Why a job has its current width; older servers do not report it."""
    return spec.get("notes", ()) if document["width_min"] == document["width_max"] else ()
