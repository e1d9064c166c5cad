"""`swell show`"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import job_argument, output_option, with_client

if TYPE_CHECKING:
    from swell.client import Client

EVENTS_SHOWN = 20
TASKS_SHOWN = 8


@click.command("show")
@job_argument()
@output_option
@with_client
def command(client: Client, job: str, output: str) -> int:
    """Everything about one job: what was asked, where it ran, what happened.

    Of a command that is a whole script its first line; -o json has all of it.
    """
    from swell.cli.printing import print_document

    document = client.show(job)
    if output in ("json", "yaml"):
        print_document(document, output)
    else:
        _print(document)
    return 0


def _print(job: dict[str, Any]) -> None:
    from swell.cli.printing import event_detail, paint, print_table, say_lines, why_text

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
        "asks for": _asks(spec, role),
        "tasks": "{succeeded} succeeded, {failed} failed, {running} running of {total}".format(**job["tasks"]),
        **_gpus(job),
        **_training(job),
        "submitted": job["submitted_at"],
        "started": job["started_at"] or "-",
        "ended": job["ended_at"] or "-",
    }
    say_lines({name: text for name, text in lines.items() if text})
    for note in spec.get("notes", ()):  # a server of before has none
        print(f"note: {note}")
    _print_profile(job["training"])
    for attempt in job["attempts"]:
        print(f"\nattempt {attempt['number']}: width {attempt['width']}, {attempt['outcome'] or 'not ended'}")
        if attempt["asked"]:
            print(f"  asked to give room back: {attempt['asked']['cause']}")
        for line in _failed_tasks(attempt) if spec["array"] else _places(attempt):
            print(f"  {line}")
    print()
    rows = [
        [event["at"], event["kind"], event["actor"], event_detail(event)] for event in job["events"][-EVENTS_SHOWN:]
    ]
    print_table(["AT", "EVENT", "BY", "DETAIL"], rows)


def command_line(argv: list[str]) -> str:
    """Of a script within it the first line; -o json has all of it."""
    first, *others = shlex.join(argv).split("\n")
    script = max(argv, key=lambda word: word.count("\n"), default="")
    return f"{first} … ({len(script.strip().splitlines())} lines)" if others else first


def _gpus(job: dict[str, Any]) -> dict[str, str]:
    """What it may use of its GPUs and what it does; nothing for a job without."""
    memory, idle = job["gpu_memory"], job["idle_policy"]
    lines = {}
    if memory is not None:
        reserved = "whole GPUs" if memory["reserved_mib"] is None else f"{memory['reserved_mib']} MiB reserved"
        level = "" if memory["level"] is None else f" ({memory['level']})"
        measured = [
            f"{memory[key]} MiB {word}"
            for key, word in (("now_mib", "now"), ("peak_mib", "at most"))
            if memory[key] is not None
        ]
        lines["GPU memory"] = ", ".join([reserved + level, *measured])
    if idle is not None:
        lines["idle GPUs"] = f"stopped when none reaches {idle['min_gpu_utilization']} % within {idle['window_s']:g} s"
        if idle["measured"] is False:
            lines["idle GPUs"] += "; not measured on simulated GPUs"
        elif idle["quiet_s"]:
            lines["idle GPUs"] += f"; quiet for {idle['quiet_s']:g} s"
    return lines


def _container(container: dict[str, Any] | None) -> dict[str, str]:
    if container is None:
        return {}
    mounts = [f"{one['source']}:{one['target']}{':ro' * one['is_read_only']}" for one in container["mounts"]]
    ports = [f"{host}:{inside}" for host, inside in container["ports"]]
    lines = {"image": container["image"], "mounts": ", ".join(mounts), "ports": ", ".join(ports)}
    return {name: text for name, text in lines.items() if text}


def _training(job: dict[str, Any]) -> dict[str, str]:
    """What it has said of itself; nothing when it has said nothing."""
    training, progress = job["training"], job["progress"]
    if training is None:
        return {}
    total = "?" if progress["epochs_total"] is None else f"{progress['epochs_total']:g}"
    lines = {"epochs": f"{progress['epochs_done']:g} of {total}"}
    if progress["expected_end_at"] and job["state"] == "running":
        lines["epochs"] += f"; done at about {progress['expected_end_at'][:19]}Z"
    checkpoint = training["checkpoint"]
    if checkpoint is not None:
        where = checkpoint["path"] or "where the job keeps it"
        lines["checkpoint"] = f"{checkpoint['epochs_done']:g} epochs, {where}, {checkpoint['at'][:19]}Z"
    if job["metrics"]:
        lines["metrics"] = ", ".join(f"{name} {value:.6g}" for name, value in job["metrics"].items())
    cost = "" if training["restart_s"] is None else f"; a restart takes {training['restart_s']:.1f} s"
    counted = f"{job['resizes']} resizes, {job['preemptions']} preemptions, {job['failures']} failures"
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


def _asks(spec: dict[str, Any], role: dict[str, Any]) -> str:
    from swell.model.quantity import duration_text

    parts = [f"{role['cpus_milli'] / 1000:g} CPU"]
    if role["memory_mib"]:
        parts.append(f"{role['memory_mib']} MiB")
    low, high = spec["width_min"], spec["width_max"]
    span = str(low) if low == high else f"{low}..{high}"
    if spec["dimension"] == "gpus":
        parts.append(f"{span} GPU")
    elif role["gpus"]:
        parts.append(f"{role['gpus']} GPU")
    if role["gpu_memory_mib"]:
        whole = spec["dimension"] == "gpus" or role["gpus"]
        parts.append(f"{role['gpu_memory_mib']} MiB of " + ("each GPU at least" if whole else "one GPU, shared"))
    each = ", ".join(parts)
    if spec["array"]:
        each += f" for each of {spec['array']['indices']}, {spec['array']['at_once']} at once"
    elif spec["dimension"] == "tasks" and high > 1:
        each += f" for each of {span} tasks"
    limit = f"; at most {duration_text(spec['time_limit_s'])}" if spec["time_limit_s"] else ""
    return f"{each}; priority {spec['priority']}{limit}"


def _places(attempt: dict[str, Any]) -> list[str]:
    return [
        f"task {place['task']}: {place['node']}" + (f" on {', '.join(place['devices'])}" if place["devices"] else "")
        for place in attempt["placements"][:TASKS_SHOWN]
    ]


def _exit(task: dict[str, Any]) -> str:
    return "no exit code" if task["exit_code"] is None else f"exit code {task['exit_code']}"


def _failed_tasks(attempt: dict[str, Any]) -> list[str]:
    """Of an array only what went wrong is worth a line."""
    failed = [task for task in attempt["tasks"] if task["ended_at"] and (task["exit_code"] != 0 or task["cause"])]
    lines = [f"task {task['index']}: {_exit(task)} {task['cause'] or ''}".rstrip() for task in failed]
    return lines[:TASKS_SHOWN] + ([f"and {len(lines) - TASKS_SHOWN} more"] if len(lines) > TASKS_SHOWN else [])
