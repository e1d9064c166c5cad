"""What a run says of tasks that cannot be started here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from swell.model.job import Container
from swell.model.launch import CAUSE_START, TaskSeen
from swell.worker.machine import Machine
from swell.worker.run import Run

from .test_environment import LAUNCH


def test_without_a_runtime_a_job_with_an_image_fails_and_is_told_what_to_do(tmp_path: Path) -> None:
    """The server refuses it before; but it may know of another machine that has one."""
    seen: list[TaskSeen] = []
    machine = Machine("store", "boot", lambda *_: None, seen.append, tmp_path, None)
    launch = replace(LAUNCH, container=Container("python:3.12"), own=())
    run = Run(machine, launch, tmp_path, {}, port=4000)
    run.step(0.0)
    told = (
        "the job has an image, but this machine has neither podman nor docker; install one, then: swell down, swell up"
    )
    assert [(task.index, task.exit_code, task.cause, task.problem) for task in seen] == [
        (0, 125, CAUSE_START, told),
        (1, 125, CAUSE_START, told),
    ]
    assert run.is_finished
