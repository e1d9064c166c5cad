"""Use is added up by user and day, and outlives the jobs it comes from."""

from __future__ import annotations

from store.jobs import accept, end
from swell.model.usage import Account, DayOfUse, Used
from swell.store import Changes


def used(store, owner: str, day: str, *numbers: float) -> None:
    store.record(Changes(usage={(owner, day): Used(*numbers)})).result()


def test_use_adds_up_by_user_and_day(store):
    used(store, "ann", "2026-11-16", 10.0, 40.0, 2.0, 1)
    used(store, "ann", "2026-11-16", 5.0, 1.0, 0.0, 1)
    used(store, "bob", "2026-11-15", 1.0, 1.0, 0.0, 1)
    assert store.usage(since="2026-11-15") == [
        DayOfUse("bob", "2026-11-15", Used(1.0, 1.0, 0.0, 1)),
        DayOfUse("ann", "2026-11-16", Used(15.0, 41.0, 2.0, 2)),
    ]
    assert [one.owner for one in store.usage(since="2026-11-16")] == ["ann"]
    assert store.usage_totals() == {"ann": Used(15.0, 41.0, 2.0, 2), "bob": Used(1.0, 1.0, 0.0, 1)}


def test_an_account_is_replaced_by_its_new_value(store):
    for account in (Account(10.0, 1.0), Account(4.0, 2.0)):
        store.record(Changes(accounts={"ann": account})).result()
    assert store.accounts() == {"ann": Account(4.0, 2.0)}


def test_use_stays_when_its_job_and_its_events_are_forgotten(store, clock):
    [job] = accept(store, "a")
    end(store, job, clock.time)
    used(store, "ann", "2026-11-16", 10.0)
    store.forget([job], by="ann").result()
    store.forget_events(clock.time + 1).result()
    assert store.usage(since="2026-01-01") == [DayOfUse("ann", "2026-11-16", Used(10.0))]
