"""`run-scheduler --est_nhours`: what a guess is good for, typed and reported as scripts of kubeprofiler do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.doors.foreign import Foreign, of_job

from .shell import Shell

HOUR_S = 3600.0


@pytest.fixture
def one_gpu(shell: Shell) -> Shell:
    worker = shell.service.worker
    worker.node = replace(worker.node, devices=worker.node.devices[:1])
    worker.sync()
    return shell


def schedule(shell: Shell, name: str, *words: str) -> int:
    return shell.type("run-scheduler", name, "--script_path", "/x.py", "--is_single_gpu", *words).id


class Script:
    """As the original library speaks for it, through the address that its job has in SWELL_DOOR."""

    def __init__(self, shell: Shell, job: int) -> None:
        self._door: Foreign = of_job(shell.service, job, lasts_s=24 * HOUR_S)
        self._uuid = f"{shell.service.store.id[:8]}-{job}"

    def has_to_stop(self) -> bytes:
        return self._door.raw("GET", f"/has_to_stop/{self._uuid}")[1]

    def end_epoch(self, done: int) -> None:
        measured = {"iternum": 10 * done, "meandur": 0.5, "gpumem": 0, "epochDur": 60.0}
        assert self._door.ask("POST", f"/profiling/{self._uuid}", measured)[0] == 200
        assert self._door.ask("POST", f"/end_epoch/{self._uuid}", {"done": done})[0] == 200


def three_hours_later(shell: Shell, *words: str) -> tuple[int, Script, int]:
    """A job that was guessed to take two hours is in its second epoch, and another one of its priority waits."""
    late = schedule(shell, "late", "--est_nhours", "2", *words)
    shell.service.worker.begin(late)
    script = Script(shell, late)
    assert script.has_to_stop() == b"0"
    script.end_epoch(1)
    assert script.has_to_stop() == b"0"
    shell.clock.ahead_s = 3 * HOUR_S
    other = schedule(shell, "other")
    shell.service.until_true(other, lambda job: job["reason"]["code"] != "NotYetPlanned")
    script.end_epoch(2)
    return late, script, other


def test_a_job_that_exceeds_its_estimate_gives_way_at_a_checkpoint_and_says_why_it_waits(one_gpu: Shell) -> None:
    late, script, other = three_hours_later(one_gpu)
    assert script.has_to_stop() == b"1"
    one_gpu.service.worker.gone(late, 0)
    one_gpu.service.worker.begin(other)
    told = {line.split()[1]: line for line in one_gpu.type("scheduler-state").stdout.splitlines()}
    assert ("queued" in told["late"], "OverEstimate" in told["late"]) == (True, True), told
    one_gpu.service.worker.end(other)
    one_gpu.service.worker.until_asked(late, 2)


def test_after_the_first_epoch_what_was_measured_counts_instead_of_the_guess(one_gpu: Shell) -> None:
    _, script, _ = three_hours_later(one_gpu, "--max_epochs", "1000")
    assert script.has_to_stop() == b"0"
    told = {line.split()[1]: line for line in one_gpu.type("scheduler-state").stdout.splitlines()}
    assert ("running" in told["late"], "2/1000" in told["late"], "queued" in told["other"]) == (True, True, True), told
