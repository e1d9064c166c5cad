"""A job that ends while the server is away leaves its last report where the server finds it when it is back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import swell_sdk.run
from swell_sdk import Run
from swell_sdk.lastwords import BYTES_MAX, spell
from swell_sdk.news import Checkpoint, Report

from .scripts import Script
from .server import Server

TRAINED = """
import swell_sdk
run = swell_sdk.attach()
for epoch in run.epochs(total=3):
    run.metric("loss", 0.5)
    run.durable(epoch + 1)
    if epoch == 0:
        run.finish()
        gate("one epoch is reported")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """As a kubelet makes it: there, and empty."""
    path = tmp_path / "termination-log"
    path.touch()
    return path


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the server at its end."""
    monkeypatch.setattr(swell_sdk.run, "FLUSH_S", 0.0)


def left_in(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_what_nobody_heard_is_left_at_the_end(start: Callable[..., Script], server: Server, file: Path) -> None:
    script = start(TRAINED, SWELL_LAST_WORDS=str(file))
    assert script.at_gate() == "one epoch is reported"
    server.stop()
    script.go()
    code, _, said = script.end()

    assert (code, "Traceback" in said) == (0, False)
    words = left_in(file)
    report = words["report"]
    assert words == {"swell_attempt": "12.3", "report": report}
    assert {name: report[name] for name in ("rank", "begun", "epochs_done", "epochs_total", "metrics")} == {
        "rank": 0,
        "begun": 3,
        "epochs_done": 3,
        "epochs_total": 3,
        "metrics": {"loss": 0.5},
    }
    assert [number for number, _ in report["epochs"]] == [1, 2, 3]  # the first ended after its report
    assert (report["checkpoint"]["epochs_done"], report["checkpoint"]["path"]) == (3, None)


def test_of_a_job_that_was_heard_to_its_end_nothing_is_left(
    start: Callable[..., Script], server: Server, file: Path
) -> None:
    script = start(TRAINED, SWELL_LAST_WORDS=str(file))
    script.at_gate()
    script.go()

    assert script.end()[0] == 0
    assert file.read_text() == ""


@pytest.mark.usefixtures("hasty")
def test_what_was_heard_after_all_is_taken_back(attached: Callable[..., Run], server: Server, file: Path) -> None:
    server.stop()
    run = attached(SWELL_LAST_WORDS=str(file))
    run.durable(1)
    run.finish()
    assert left_in(file)["report"]["epochs_done"] == 1

    server.start()
    server.wait_report(lambda one: one["epochs_done"] == 1, "what it had left")
    server.wait(lambda: run.news.take() is None, "it to know that it was heard")
    run.finish()
    assert file.read_text() == ""


@pytest.mark.usefixtures("hasty")
def test_what_is_left_is_the_newest(attached: Callable[..., Run], server: Server, file: Path) -> None:
    server.stop()
    run = attached(SWELL_LAST_WORDS=str(file))
    for epochs in (100, 2000):
        run.durable(epochs)
        run.finish()
    assert left_in(file)["report"]["checkpoint"]["epochs_done"] == 2000


@pytest.mark.usefixtures("hasty")
def test_what_a_script_has_written_there_stays(attached: Callable[..., Run], server: Server, file: Path) -> None:
    file.write_text("out of data")
    server.stop()
    run = attached(SWELL_LAST_WORDS=str(file))
    run.durable(1)
    run.finish()
    assert file.read_text() == "out of data"


@pytest.mark.usefixtures("hasty")
def test_a_file_that_is_not_there_is_not_made(
    attached: Callable[..., Run], server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.stop()
    run = attached(SWELL_LAST_WORDS=str(tmp_path / "nothing"))
    run.durable(1)
    run.finish()
    assert not (tmp_path / "nothing").exists()
    assert "cannot write the last report" in capfd.readouterr().err


@pytest.mark.usefixtures("hasty")
def test_of_an_attempt_that_is_over_nothing_is_left(attached: Callable[..., Run], server: Server, file: Path) -> None:
    server.set_mode(409)
    run = attached(SWELL_LAST_WORDS=str(file))
    server.wait(lambda: run._link is not None and run._link.is_over, "it to hear so")
    run.durable(1)
    run.finish()
    assert file.read_text() == ""


FIGURES = (3, 3, None, False, False)
SAVED = Checkpoint(3, "three", 1000.0)
MEASURED = tuple((number, 1.23456789012345) for number in range(200))


@pytest.mark.parametrize(
    ("what", "report", "left"),
    [
        ("what fits", Report(0, FIGURES, epochs=((3, 1.0),)), {"rank", "begun", "epochs_done", "epochs"}),
        (
            "too much was measured",
            Report(0, FIGURES, epochs=MEASURED, metrics={"m" * 99: 0.5}, checkpoint=SAVED, steps_since=(5, 1.0)),
            {"rank", "begun", "epochs_done", "checkpoint"},
        ),
        (
            "a path that is too long",
            Report(0, FIGURES, checkpoint=Checkpoint(3, "p" * BYTES_MAX, 1000.0)),
            {"rank", "begun", "epochs_done"},
        ),
    ],
)
def test_only_so_much_is_kept(what: str, report: Report, left: set[str]) -> None:
    text = spell("12.3", report)
    assert len(text) <= BYTES_MAX, what
    assert json.loads(text)["report"].keys() == left, what
