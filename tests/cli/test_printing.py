"""How things look: on a terminal, in a pipe, in JSON and YAML."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from swell.cli import printing, ps, show
from swell.cli.printing import duration, print_document, ran_for, table_lines


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (86399, "23h59m"),
        (9e4, "1d1h"),
    ],
)
def test_a_duration_fits_a_column(seconds, text):
    assert duration(seconds) == text


def test_a_table_in_a_pipe_is_aligned_and_not_cut():
    rows = [["1", "a" * 30, "x" * 300], ["20", "b", ""]]
    lines = table_lines(["ID", "NAME", "WHY"], rows)
    assert lines == [f"ID  NAME{' ' * 28}WHY", f"1   {'a' * 30}  {'x' * 300}", "20  b"]


def test_a_table_without_rows_is_its_header():
    assert table_lines(["ID", "NAME"], []) == ["ID  NAME"]


def job(**changes: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "name": "a",
        "user": "ann",
        "state": "queued",
        "reason": {"code": "NoRoom", "message": "it wants room", "evidence": {}, "next": ""},
        "priority": 0,
        "width": 0,
        "width_min": 1,
        "width_max": 4,
        "tasks": {"total": 3, "running": 0, "succeeded": 1, "failed": 1},
        "progress": {"epochs_done": 3.0, "epochs_total": 10.0, "expected_end_at": None},
        "resizes": 2,
        "preemptions": 1,
        "lost_gpu_seconds": 0.0,
        "submitted_at": "2024-01-01T00:00:00Z",
        "started_at": None,
        "ended_at": None,
        "exit_code": None,
        "nodes": [],
        **changes,
    }


def test_a_row_says_how_wide_how_far_and_why_not():
    header, [row] = ps.short_rows([job()])
    shown = dict(zip(header, row, strict=True))
    assert (shown["WIDTH"], shown["TASKS"], shown["RAN"]) == ("0/1..4", "2/3 (1 failed)", "-")
    assert (shown["EPOCHS"], shown["LEFT"]) == ("3/10", "-")
    assert shown["REASON"] == "NoRoom: it wants room"


ELASTIC = {"width_unit": "tasks", "tasks_beside": 0, "is_array": False}


@pytest.mark.parametrize(
    ("about", "waiting", "running"),
    [
        ({**ELASTIC, "width_min": 1, "width_max": 1}, "0/1", "1/1"),
        ({**ELASTIC, "width_min": 1, "width_max": 1, "tasks_beside": 1}, "0/2", "2/2"),  # a PyTorchJob
        ({**ELASTIC, "width_min": 1, "width_max": 4, "tasks_beside": 1}, "0/2..5", "2/2..5"),
        ({**ELASTIC, "width_min": 1, "width_max": 8, "is_array": True}, "0/8", "1/8"),
        ({**ELASTIC, "width_min": 1, "width_max": 4, "width_unit": "gpus"}, "0/1..4 each", "1/1..4 each"),
    ],
)
def test_the_width_is_all_that_is_held_and_asked_for(about, waiting, running):
    """A PyTorchJob of two pods showed 0/1, an array of eight at once 0/1..8, as if it were elastic."""
    header, rows = ps.short_rows([job(**about, width=width) for width in (0, 1)])
    assert [row[header.index("WIDTH")] for row in rows] == [waiting, running]


@pytest.mark.parametrize(
    ("roles", "about", "said"),
    [
        ([("main", 0, 1)], {}, "1 CPU"),
        ([("main", 1, 3)], {"width_min": 3, "width_max": 3}, "1 CPU, 1 GPU for each of 3 tasks"),
        ([("Master", 1, 1), ("Worker", 1, 1)], {}, "Master: 1 CPU, 1 GPU; Worker: 1 CPU, 1 GPU"),
        ([("Master", 0, 1), ("Worker", 2, 3)], {}, "Master: 1 CPU; Worker: 1 CPU, 2 GPU for each of 3 tasks"),
        ([("main", 1, 1)], {"dimension": "gpus", "width_max": 4}, "1 CPU, 1..4 GPU"),
        (
            [("main", 0, 1)],
            {"array": {"indices": "0-9", "at_once": 2}, "width_max": 2},
            "1 CPU for each of 0-9, 2 at once",
        ),
    ],
)
def test_what_every_role_asks_for_is_said(roles, about, said):
    """Of a PyTorchJob with a Master and a Worker only the Master's was."""
    shape = {"dimension": "tasks", "width_min": 1, "width_max": 1, "array": None, "time_limit_s": None, "priority": 0}
    needs = {"cpus_milli": 1000, "memory_mib": 0, "gpu_memory_mib": 0}
    named = [{"name": name, "gpus": gpus, "count": count, **needs} for name, gpus, count in roles]
    assert show._asks({**shape, "roles": named, **about}) == f"{said}; priority 0"


def test_a_wide_row_also_says_whose_where_and_with_which_code():
    header, [row] = ps.wide_rows([job(nodes=["n1", "n2"], exit_code=3, reason=None)])
    shown = dict(zip(header, row, strict=True))
    assert (shown["USER"], shown["NODES"], shown["EXIT"], shown["REASON"]) == ("ann", "n1,n2", "3", "")
    assert (shown["RESIZED/PREEMPTED"], shown["LOST"]) == ("2/1", "0")


def test_states_are_counted_in_one_line_the_active_ones_first():
    assert ps.states_line({"failed": 1, "queued": 120, "running": 3}) == "3 running, 120 queued, 1 failed"


def test_colour_is_for_terminals_that_want_it(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert printing.paint("running", "running") == "\x1b[32mrunning\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert printing.paint("running", "running") == "running"


def test_yaml_reads_back_as_what_was_printed(capsys):
    document = {"name": "été", "lines": ["a: b", "- c", "no"], "none": None}
    print_document(document, "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == document


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["python", "train.py", "--lr", "1 2"], "python train.py --lr '1 2'"),
        (["sh", "-c", "set -e\ncd /data\nexec python train.py\n"], "sh -c 'set -e … (3 lines)"),
        ([], ""),
    ],
)
def test_a_command_takes_one_line_however_long_its_script_is(argv: list[str], text: str):
    assert show.command_line(argv) == text


def test_what_a_job_does_not_have_has_no_line(capsys):
    """A manifest's job has no folder, and its command may be the image's."""
    role = {"command": [], "cpus_milli": 1000, "memory_mib": 0, "gpus": 0, "gpu_memory_mib": 0}
    spec = {"roles": [role], "workdir": "", "array": None, "width_min": 1, "width_max": 1, "dimension": "tasks"}
    about = {"gpu_memory": None, "idle_policy": None, "training": None, "attempts": [], "events": []}
    show._print(job(spec={**spec, "time_limit_s": None, "priority": 0}, reason=None, **about))
    names = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ":  " in line]
    assert names == ["job", "state", "reason", "requests", "tasks", "submitted", "started", "ended"]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({}, ""),
        ({"of_others": 0}, ""),
        ({"of_others": 1}, "(1 job of other users: swell ps --all-users)\n"),
        ({"of_others": 12}, "(12 jobs of other users: swell ps --all-users)\n"),
    ],
)
def test_jobs_of_others_are_counted_where_only_ones_own_are_listed(answer: dict[str, int], line: str):
    assert ps.others_line(answer) == line


HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x1b[31mb\x9b1A\r\u202egnp\u2066\x7f\udcff"
SHOWN = "a\\x1b]0;owned\\x07\\x1b[2J\\x1b[31mb\\x9b1A\\x0d\\u202egnp\\u2066\\x7f\\udcff"


def test_what_a_terminal_would_obey_is_shown_and_other_letters_are_left_alone():
    assert printing.visible(HOSTILE) == SHOWN
    assert printing.visible("größe 大 😀 e\u0301\n\tx") == "größe 大 😀 e\u0301\n\tx"


def test_a_table_a_sentence_and_a_document_show_it_on_one_line(capsys):
    assert table_lines(["NAME", "WHY"], [[HOSTILE, "a\nb"]])[1] == f"{SHOWN}  a\\nb"
    printing.say(HOSTILE)
    assert capsys.readouterr().err == f"swell: {SHOWN}\n"
    assert printing.visible_in({"a": [HOSTILE, 1, None, {HOSTILE: HOSTILE}]}) == {"a": [SHOWN, 1, None, {SHOWN: SHOWN}]}


def test_how_long_a_job_ran_is_that_of_its_attempts() -> None:
    """A job that had run for 34.5 s was said to have run for 4m04s: it had lain failed before it was requeued."""
    job = {"started_at": "2026-01-01T10:00:00Z", "ended_at": "2026-01-01T10:04:04Z", "ran_s": 34.5}
    assert ran_for({**job, "running_since": None}) == "34s"
    assert ran_for({**job, "started_at": None, "running_since": None}) == "-"
    since = datetime.fromtimestamp(time.time() - 100, UTC).isoformat().replace("+00:00", "Z")
    assert ran_for({**job, "ended_at": None, "running_since": since}) in ("2m14s", "2m15s")
    assert ran_for({"started_at": job["started_at"], "ended_at": job["ended_at"]}) == "4m04s"  # of a server of before
