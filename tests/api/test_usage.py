"""GPU-hours over HTTP: by user and day, with what runs, and nobody else's lines."""

from __future__ import annotations

from datetime import date

import pytest

from swell.api.box import Caller
from swell.api.usage import first_day, grouped, whose
from swell.errors import Denied, Rejected
from swell.model.usage import DayOfUse, Used
from swell.store import Changes

ANN, ADMIN = Caller("ann", is_admin=False), Caller("root", is_admin=True)
TODAY = date(2026, 11, 16)
FOUND = [
    DayOfUse("ann", "2026-11-15", Used(3600.0, 7200.0, 1800.0, 1)),
    DayOfUse("bob", "2026-11-15", Used(7200.0, 0.0, 0.0, 2)),
    DayOfUse("ann", "2026-11-16", Used(3600.0, 0.0, 0.0, 1)),
]


def line(user: str | None, day: str | None, gpu: float, cpu: float, lost: float, attempts: int) -> dict[str, object]:
    hours = {"gpu_hours": gpu, "cpu_hours": cpu, "lost_gpu_hours": lost}
    return {"user": user, "day": day, **hours, "attempts": attempts}


def test_lines_are_sums_by_user_by_day_or_by_both():
    assert grouped(FOUND, "user") == [line("ann", None, 2.0, 2.0, 0.5, 2), line("bob", None, 2.0, 0.0, 0.0, 2)]
    assert grouped(FOUND, "day") == [
        line(None, "2026-11-15", 3.0, 2.0, 0.5, 3),
        line(None, "2026-11-16", 1.0, 0.0, 0.0, 1),
    ]
    assert grouped(FOUND, "user,day") == [
        line("ann", "2026-11-15", 1.0, 2.0, 0.5, 1),
        line("bob", "2026-11-15", 2.0, 0.0, 0.0, 2),
        line("ann", "2026-11-16", 1.0, 0.0, 0.0, 1),
    ]


def test_everybody_sees_their_own_lines_and_an_admin_those_of_others():
    assert whose(ANN, None, all_users=False) == "ann"
    assert whose(ANN, "ann", all_users=False) == "ann"
    assert whose(ADMIN, None, all_users=False) == "root"
    assert whose(ADMIN, "ann", all_users=False) == "ann"
    assert whose(ADMIN, None, all_users=True) is None


@pytest.mark.parametrize(("user", "all_users"), [("bob", False), (None, True)])
def test_the_lines_of_others_are_refused_to_who_is_no_admin(user, all_users):
    with pytest.raises(
        Denied, match="other users' usage is for administrators; you are 'ann'; without -u and --all-users you see"
    ):
        whose(ANN, user, all_users=all_users)


def test_the_first_day_is_given_or_counted_back_from_today():
    assert first_day(None, None, TODAY) == "2026-10-18"
    assert first_day(None, 1, TODAY) == "2026-11-16"
    assert first_day("2026-01-31", None, TODAY) == "2026-01-31"


@pytest.mark.parametrize(
    ("since", "days", "said"),
    [
        ("yesterday", None, "'yesterday' is not a day; write it as 2026-11-16"),
        ("2026-02-30", None, "'2026-02-30' is not a day; write it as 2026-11-16"),
        ("2026-02-03", 3, "both a first day and a number of days are given; leave one of them out"),
    ],
)
def test_a_first_day_that_cannot_be_meant_is_refused(since, days, said):
    with pytest.raises(Rejected) as refusal:
        first_day(since, days, TODAY)
    assert str(refusal.value) == said


def test_what_runs_and_what_has_ended_and_was_deleted_are_counted(service):
    before = service.ask("GET", "/usage?days=2").json["total"]
    job = service.submit(gpus=2)
    service.worker.begin(job)
    [mine] = service.ask("GET", "/usage?days=2").json["usage"]
    assert (mine["user"], mine["day"], mine["attempts"]) == ("ann", None, before["attempts"] + 1)
    assert mine["gpu_hours"] > before["gpu_hours"]
    service.worker.end(job)
    assert service.ask("DELETE", f"/jobs/{job}").status == 204
    total = service.ask("GET", "/usage?days=2").json["total"]
    assert total["attempts"] == mine["attempts"]
    assert total["gpu_hours"] >= mine["gpu_hours"]


def test_another_users_lines_and_the_total_of_everybody(service):
    service.store.record(Changes(usage={("eve", "2020-02-02"): Used(3600.0, 0.0, 0.0, 1)})).result()
    found = service.ask("GET", "/usage?since=2020-02-02&user=eve").json
    assert found["usage"] == [line("eve", None, 1.0, 0.0, 0.0, 1)]
    assert found["total"]["gpu_hours"] >= 1.0
    assert "eve" in {one["user"] for one in service.ask("GET", "/usage?since=2020-02-02&all_users=1").json["usage"]}
    assert service.ask("GET", "/usage?since=2020-02-03&user=eve").json["usage"] == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("since=soon", "'soon' is not a day; write it as "),
        ("days=0", "days must be at least 1, but is '0'"),
        ("by=job", "by must be 'user', 'day' or 'user,day', but is 'job'"),
        ("user=eve&all_users=1", "both one user (eve) and all users are given; leave one of them out"),
    ],
)
def test_a_question_that_cannot_be_meant_is_refused(service, query, said):
    status, kind, message = service.ask("GET", f"/usage?{query}").error
    assert (status, kind, message.startswith(said)) == (422, "Rejected", True), message
