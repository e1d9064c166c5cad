"""Endpoints for jobs: what they report, what they are asked. docs/reports.md is the contract.

The token says which attempt it is for, and the guard has checked that before anything was read. What is wrong is
refused with a reason; nothing here can slow a job down or be filled by one: bodies, rates and names are bounded.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import BaseModel, Field

from swell.api.checkpoints import find_checkpoint
from swell.api.services import Services
from swell.api.wire import ERRORS, Json
from swell.engines.report_form import EPOCHS_MAX, RANKS_MAX, SECONDS_MAX, STEPS_MAX, ReportIn
from swell.errors import NotFound
from swell.model.job import AttemptId
from swell.model.training import METRICS_MAX, Control, RankPosition, Report

REPORTS_PER_S = 20.0  # of one attempt; the library sends five at most
HOLD_S_MAX = 60.0
ATTEMPTS_REMEMBERED_MAX = 10_000  # for pace and the like; far more than run at once


class MetricIn(BaseModel):
    name: str
    value: str


class TrainerStatus(BaseModel):
    progressPercentage: float | None = Field(default=None, ge=0, le=100)  # noqa: N815  Kubeflow's names
    estimatedRemainingSeconds: float | None = Field(default=None, ge=0, le=SECONDS_MAX)  # noqa: N815
    metrics: list[MetricIn] = Field(default_factory=list, max_length=256)
    lastUpdatedTime: str | None = None  # noqa: N815


class TrainerStatusIn(BaseModel):
    """Kubeflow's trainer status; a field that a later version adds is not our business."""

    trainerStatus: TrainerStatus | None = None  # noqa: N815


def reports_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/attempts", tags=["reports"], responses=ERRORS)
    controller = services.controller
    pace = Pace()
    library: set[AttemptId] = set()  # attempts whose own library reports: what it counts is exact

    @router.post("/{attempt}/report")
    async def report(attempt: str, body: ReportIn) -> Response:
        """Record a job's report of its training; the answer comes when it is on disk."""
        whose = _parse(attempt)
        pace.step(whose)
        checkpoint = None
        if body.checkpoint is not None:
            checkpoint = await find_checkpoint(services, whose, body.checkpoint)
        await asyncio.wrap_future(controller.report(body.of(whose, checkpoint)))
        if len(library) > ATTEMPTS_REMEMBERED_MAX:
            library.clear()  # those that run say so again
        library.add(whose)
        return Json(_answer(controller.control(whose)))

    @router.get("/{attempt}/control")
    async def control(
        attempt: str,
        rank: int = Query(0, ge=0, le=RANKS_MAX),
        begun: int | None = Query(None, ge=0, le=EPOCHS_MAX),
        known: str = Query(
            "", max_length=80, description="request that the job knows: K, K?, K@EPOCH.STEP; empty: none"
        ),
        hold_s: float = Query(0, ge=0, le=HOLD_S_MAX),
        epoch: int | None = Query(None, ge=0, le=EPOCHS_MAX, description="with step: the job can stop at any step"),
        step: int = Query(0, ge=0, le=STEPS_MAX),
        step_s: float = Query(0, ge=0, le=SECONDS_MAX, allow_inf_nan=False),
        of: int = Query(1, ge=1, le=RANKS_MAX, description="number of ranks of the job"),
    ) -> Response:
        """Return what the job is asked to do; waits until that differs from what the job knows."""
        whose = _parse(attempt)
        if begun is not None:
            at = None
            if epoch is not None and rank < of:
                at = RankPosition(epoch, step, step_s, of, services.now(), was_asked="?" in known)
            controller.has_begun(whose, rank, begun, at)
        until = asyncio.get_running_loop().time() + hold_s
        asked = controller.control(whose)
        while asked.known == known and not asked.yield_now and not services.control.is_closed:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await services.control.wait(left)
            asked = controller.control(whose)
        return Json(_answer(asked))

    @router.post("/{attempt}/trainer-status")
    async def trainer_status(attempt: str, body: TrainerStatusIn) -> Response:
        """Record a status of Kubeflow's trainer protocol, which Transformers sends by itself."""
        whose = _parse(attempt)
        pace.step(whose)
        if body.trainerStatus is not None:
            told = _from_kubeflow(whose, body.trainerStatus, counts_epochs=whose not in library)
            await asyncio.wrap_future(controller.report(told))
        return Json({})

    return router


def _answer(control: Control) -> dict[str, Any]:
    """What concerns steps is only said where it is asked."""
    steps = {"stop_at_step": control.stop_at_step, "tell_step": control.tell_step}
    told = {"stop_after_epoch": control.stop_after_epoch, "yield_now": control.yield_now}
    return told | {name: asked for name, asked in steps.items() if asked}


def _parse(text: str) -> AttemptId:
    try:
        return AttemptId.parse(text)
    except ValueError:
        raise NotFound(f"there is no attempt {text!r}; it is written as in SWELL_ATTEMPT, 12.1") from None


def _from_kubeflow(attempt: AttemptId, status: TrainerStatus, *, counts_epochs: bool) -> Report:
    """Whole percents run ahead of what is done, so where the library counts epochs these do not count."""
    named = {metric.name: number for metric in status.metrics if (number := _number(metric.value)) is not None}
    total, current = named.pop("totalEpochs", None), named.pop("currentEpoch", None)
    if total is not None and not 0 < total <= EPOCHS_MAX:
        total = None
    done = None
    if status.progressPercentage is not None:
        total = total or 1.0
        done = status.progressPercentage / 100 * total
    elif current is not None and 0 <= current <= (total or EPOCHS_MAX):
        done = current
    if not counts_epochs:
        total = done = None
    shown = [(name[:100], value) for name, value in named.items() if name][:METRICS_MAX]
    return Report(
        attempt,
        rank=0,
        epochs_done=done,
        epochs_total=total,
        metrics=tuple(shown),
        left_s=status.estimatedRemainingSeconds,
    )


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class Pace:
    """How many reports an attempt may send: so many a second, in bursts of twice that."""

    def __init__(self) -> None:
        self._left: dict[AttemptId, tuple[float, float]] = {}

    def step(self, attempt: AttemptId) -> None:
        now = time.monotonic()
        left, at = self._left.get(attempt, (2 * REPORTS_PER_S, now))
        left = min(2 * REPORTS_PER_S, left + (now - at) * REPORTS_PER_S)
        if left < 1:
            raise HTTPException(429, f"more than {REPORTS_PER_S:g} reports a second; send the newest state less often")
        self._left[attempt] = left - 1, now
        if len(self._left) > ATTEMPTS_REMEMBERED_MAX:
            self._left = {one: seen for one, seen in self._left.items() if now - seen[1] < 10}
