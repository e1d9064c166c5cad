"""What jobs did, as a workload: each line is read by the simulator again, and nobody gets the lines of others."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specs import spec
from swell.api.history import history_lines
from swell.controller.curves import script_of
from swell.model.job import Array, Dimension, IndexSet, JobSpec, JobState, Role
from swell.model.resources import Resources
from swell.model.training import Checkpoint, Measure, TrainingRecord
from swell.sim import SimCluster, simulate
from swell.sim.traces import plain
from swell.store import AttemptRecord, JobRecord, NewJob
from swell.store.memory import MemoryStore

GPU = Role("worker", ("train",), Resources(2000, 4096, 1), 1)
WIDE = spec(name="wide", roles=(GPU,), dimension=Dimension.TASKS, width_min=1, width_max=4)
TRAINED = TrainingRecord(
    epochs_done=10.0,
    epochs_total=10.0,
    checkpoint=Checkpoint(10.0, "last", 900.0, 2),
    profile=(
        Measure(1, 1, epochs=3, epoch_s=60.0, is_warm=True),
        Measure(2, 1, epochs=7, epoch_s=40.0, is_warm=True),
    ),
)


class History:
    """Jobs that came one minute after the other, and what became of them."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._store = MemoryStore(lambda: self._now)
        self.jobs: list[JobRecord] = []
        self._attempts: dict[int, list[AttemptRecord]] = {}

    def add(self, job: JobSpec, *ran: tuple[int, float], training: TrainingRecord | None = None) -> None:
        """`ran`: width and seconds of each attempt."""
        [record] = self._store.accept([NewJob(job, "ann", {})]).result()
        text = None if training is None else json.dumps(training.to_document())
        ended = replace(record, state=JobState.SUCCEEDED, ended_at=self._now + 5000, training_text=text)
        self.jobs.append(ended)
        self._attempts[record.id] = [
            AttemptRecord(record.id, n, width, (), 1, self._now, self._now, self._now + seconds, "succeeded", [])
            for n, (width, seconds) in enumerate(ran, 1)
        ]
        self._now += 60.0

    def attempts(self, job: int) -> Sequence[AttemptRecord]:
        return self._attempts[job]


def _script(job: JobSpec) -> str:
    """The same for jobs that share a curve, and unlike any other."""
    key = script_of(job, "ann")
    assert key is not None
    return f"{key.digest[:8]}-{job.name}"


def test_a_job_that_reported_epochs_keeps_its_curve_and_any_other_how_long_it_ran() -> None:
    history = History()
    history.add(WIDE, (1, 180.0), (2, 300.0), training=TRAINED)
    rigid_role = replace(GPU, resources=Resources(8000, 0, 4))
    history.add(spec(name="rigid", roles=(rigid_role,), has_own_curve=True), (1, 90.5))
    lines, left_out = history_lines(history.jobs, history.attempts)
    each = {"memory": "4096MiB", "cpus": 2.0, "priority": 0, "user": "ann"}
    wide = {
        "submit_time": 0.0,
        "gpus": "1..4",
        "requested": 2,
        "duration": 400.0,
        "speedup": "1:1 2:1.5 4:2.89781",
        **each,
        "name": "wide",
        "epochs": 10,
        "resumes": "yes",
        "script": _script(WIDE),
    }
    rigid = {
        "submit_time": 60.0,
        "gpus": "4",
        "requested": 4,
        "duration": 90.5,
        "speedup": "",
        **each,
        "memory": "0MiB",
        "name": "rigid",
        "epochs": 1,
        "resumes": "no",
        "script": "",
    }
    assert (lines, left_out) == ([wide, rigid], {})


def test_jobs_that_cannot_be_replayed_are_counted() -> None:
    history = History()
    history.add(WIDE)
    history.add(spec(roles=(replace(GPU, resources=Resources(1000)),)), (1, 10.0))
    history.add(spec(roles=(GPU,), array=Array(IndexSet.parse("0-1"), 2)), (1, 10.0))
    history.add(WIDE, (1, 10.0))
    history.jobs[-1] = replace(history.jobs[-1], ended_at=None)
    lines, left_out = history_lines(history.jobs, history.attempts)
    assert (lines, left_out) == ([], {"arrays": 1, "never ran": 1, "not ended": 1, "without whole GPUs": 1})


def test_the_simulator_reads_what_was_exported(tmp_path: Path) -> None:
    history = History()
    history.add(WIDE, (2, 300.0), training=TRAINED)
    history.add(spec(name="rigid", roles=(GPU,)), (1, 90.0))
    lines, _ = history_lines(history.jobs, history.attempts)
    path = tmp_path / "week.csv"
    with path.open("w") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    workload = plain.read(path)
    assert [(job.name, job.submit_s, job.width_min, job.width_max, job.resumes) for job in workload.jobs] == [
        ("wide", 0.0, 1, 4, True),
        ("rigid", 60.0, 1, 1, False),
    ]
    assert [job.script for job in workload.jobs] == [line["script"] for line in lines]
    assert [round(workload.jobs[0].left_s((n,), 0.0), 6) for n in (1, 2)] == [600.0, 400.0]
    assert [job.state for job in simulate(workload, SimCluster.of(1, 4)).jobs] == ["succeeded", "succeeded"]


def test_the_answer_is_one_document_of_those_that_have_ended(service) -> None:
    """It is written line by line, so that a hundred thousand of them hold up nobody else."""
    job = service.submit(name="exported", gpus=2)
    assert "not ended" in service.ask("GET", "/history?days=2").json["left_out"]
    service.worker.begin(job)
    service.worker.end(job)
    told = service.ask("GET", "/history?days=2").json
    assert told.keys() == {"since", "jobs", "left_out"}
    [line] = [line for line in told["jobs"] if line["name"] == "exported"]
    assert (line["gpus"], line["requested"], line["user"]) == ("2", 2, "ann")
