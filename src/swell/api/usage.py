"""Endpoint for use: GPU-hours by user and day, of what has ended and of what runs now.

Everybody sees their own lines and what all together used; others' lines are for admins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from swell.api.box import Caller, caller_of
from swell.api.services import Services
from swell.api.wire import ERRORS, Json
from swell.controller.accounting import day_of
from swell.controller.diskmeter import DiskMeter
from swell.controller.foresight import EVENT, accuracy_of_starts
from swell.errors import Denied, Rejected
from swell.model.quota import MIB, DiskUse
from swell.model.usage import DayOfUse, Used

DAYS_DEFAULT = 30
DAYS_MAX = 36_500
By = Literal["user", "day", "user,day"]


class UsedOut(BaseModel):
    gpu_hours: float = Field(
        description="GPU-hours held, busy or not; a share of a GPU counts as its part of the memory"
    )
    cpu_hours: float
    lost_gpu_hours: float = Field(
        description="GPU-hours of work after the last checkpoint that had to be repeated; included in gpu_hours"
    )
    attempts: int = Field(description="attempts that began in this period")


class UsageLine(UsedOut):
    user: str | None = Field(description="user; null: all requested users, by day")
    day: str | None = Field(description="day, UTC; null: all days together")


class JobOnDisk(BaseModel):
    job: int
    mib: float


class DiskOut(BaseModel):
    user: str
    disk_mib: float = Field(description="MiB of logs, and of checkpoints in the state folder, at the last count")
    disk_mib_max: int = Field(description="limit; above it no job of the user is accepted or started")
    largest: list[JobOnDisk] = Field(description="jobs that use the most disk space")


class StartEstimatesOut(BaseModel):
    foreseen: int = Field(
        description="jobs that started in this period and whose start had been estimated while they waited"
    )
    within: int = Field(description="number of these jobs that started within the first estimated range")
    earlier: int
    later: int


class UsageOut(BaseModel):
    since: str
    until: str
    usage: list[UsageLine]
    total: UsedOut = Field(description="total of all users")
    start_estimates: StartEstimatesOut = Field(
        description="start estimates of the requested users' jobs, the last 1,000"
    )
    disk: list[DiskOut] = Field(description="disk use of the requested users who have a limit; empty: no limit")


def usage_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["usage"], responses=ERRORS)

    @router.get("/usage", response_model=UsageOut)
    async def usage(
        caller: Annotated[Caller, Depends(caller_of)],
        since: str | None = Query(None, description="first day, UTC, for example 2026-11-16", max_length=20),
        days: int | None = Query(
            None, ge=1, le=DAYS_MAX, description=f"number of days, including today; {DAYS_DEFAULT}"
        ),
        by: By = "user",
        user: str | None = None,
        all_users: bool = False,
    ) -> Response:
        """Report GPU-hours of the caller, another user or all users, and the total of all users."""
        wanted = whose(caller, user, all_users=all_users)
        caller.reads_of(wanted)
        now = services.now()
        first = first_day(since, days, date.fromisoformat(day_of(now)))
        found = await services.read(caller.user, lambda: services.controller.usage(since=first, now=now))

        def render() -> Response:
            lines = grouped((one for one in found if wanted in (None, one.owner)), by)
            total = sum((one.used for one in found), Used())
            told = {"since": first, "until": day_of(now), "usage": lines, "total": _document(total)}
            since_s = datetime.fromisoformat(f"{first}T00:00:00+00:00").timestamp()
            said = services.store.recent_events(EVENT, since=since_s, owner=wanted)
            estimates = asdict(accuracy_of_starts(event.detail for event in said))
            return Json({**told, "start_estimates": estimates, "disk": _disk(services.disk, wanted)})

        return await services.read(caller.user, render)

    return router


def whose(caller: Caller, user: str | None, *, all_users: bool) -> str | None:
    """Whose lines are shown; None: everybody's."""
    if user is not None and all_users:
        raise Rejected(f"both one user ({user}) and all users are given; leave one of them out")
    wanted = None if all_users else user or caller.user
    if wanted is None and caller.is_admin:
        return None
    if wanted is None or not caller.may_touch(wanted):
        raise Denied(
            f"other users' usage is for administrators; {caller.no_admin}; without -u and --all-users you see "
            "your own usage and the total"
        )
    return wanted


def first_day(since: str | None, days: int | None, today: date) -> str:
    if since is not None and days is not None:
        raise Rejected("both a first day and a number of days are given; leave one of them out")
    if since is None:
        return (today - timedelta(days=(days or DAYS_DEFAULT) - 1)).isoformat()
    try:
        return date.fromisoformat(since).isoformat()
    except ValueError:
        raise Rejected(f"{since!r} is not a day; write it as {today.isoformat()}") from None


def grouped(found: Iterable[DayOfUse], by: By) -> list[dict[str, Any]]:
    """By day, then user."""
    sums: dict[tuple[str, str], Used] = {}
    for one in found:
        key = one.day if "day" in by else "", one.owner if "user" in by else ""
        sums[key] = sums.get(key, Used()) + one.used
    return [{"user": user or None, "day": day or None, **_document(sums[day, user])} for day, user in sorted(sums)]


def _document(used: Used) -> dict[str, Any]:
    hours = {"gpu_hours": used.gpu_s, "cpu_hours": used.cpu_s, "lost_gpu_hours": used.lost_gpu_s}
    return {**{name: round(seconds / 3600, 6) for name, seconds in hours.items()}, "attempts": used.attempts}


def _disk(meter: DiskMeter | None, user: str | None) -> list[dict[str, Any]]:
    """`user` None: everybody who has something there."""
    if meter is None:
        return []
    found = [(one, meter.use(one)) for one in (meter.users() if user is None else [user])]
    return [_disk_document(one, use) for one, use in found if use is not None]


def _disk_document(user: str, use: DiskUse) -> dict[str, Any]:
    largest = [{"job": job, "mib": round(size / MIB, 1)} for job, size in use.largest]
    amounts = {"disk_mib": round(use.bytes / MIB, 1), "disk_mib_max": use.bytes_max // MIB}
    return {"user": user, **amounts, "largest": largest}
