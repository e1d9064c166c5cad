"""Jobs that have something to give back: what they are at when a story of yielding begins."""

from __future__ import annotations

from controller.stage import Stage


def wide(stage: Stage, **spec: object) -> int:
    """A job that runs at 4 of 1..4 since 1000, with a checkpoint of 3 epochs, made at 1100."""
    job = stage.elastic(1, 4, **spec)
    stage.begin(job)
    stage.say(job, begun=1, epochs_total=10.0)
    stage.saved(job, 3.0, seconds=100.0, path="three")
    return job


def asked_for_another(stage: Stage, **spec: object) -> tuple[int, int]:
    """The same, asked to shrink for one that came at 1100 and wants 2."""
    job = wide(stage, **spec)
    other = stage.elastic(2, 2)
    stage.cycle(0.0)
    return job, other


def team(stage: Stage, tasks: int = 2) -> int:
    """A gang that runs since 1000 with a checkpoint of 3 epochs, made at 1100; asked to yield at its next one."""
    job = stage.gang(tasks)
    stage.begin(job)
    for rank in range(1, tasks):
        stage.say(job, rank=rank, begun=1)
    stage.say(job, begun=1, epochs_total=10.0)
    stage.saved(job, 3.0, seconds=100.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    return job


def kinds_after(stage: Stage, job: int, kind: str) -> list[str]:
    kinds = stage.kinds(job)
    return kinds[kinds.index(kind) :]
