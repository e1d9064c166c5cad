"""Events of one job, and of one person, are bounded in number."""

from __future__ import annotations

from store.jobs import accept
from swell.store import Changes, EventRecord, Store
from swell.store.trail import FIRST_KEPT, OF_A_JOB_MAX, OF_NO_JOB_MAX


def write(store: Store, job: int | None, actor: str, count: int, kind: str = "HoldRequested") -> None:
    store.record(Changes(events=[EventRecord(kind, job, actor) for _ in range(count)])).result()


def all_events(store: Store) -> list[EventRecord]:
    found: list[EventRecord] = []
    while more := store.events(after=found[-1].id if found else 0):
        found += more
    return found


def test_who_holds_and_releases_a_job_in_a_loop_leaves_a_bounded_number_of_events(store: Store) -> None:
    """422 in ten seconds, without an end; the limit on what a user stores counted submissions only."""
    job, other = accept(store, "a", "b")
    write(store, job, "root", 1)
    for _ in range(30):
        write(store, job, "ann", 50)
        write(store, job, "swell", 50, "Held")
    write(store, job, "ann", 1, "Released")
    found = store.events(job=job, limit=OF_A_JOB_MAX + 100)
    assert len(found) == OF_A_JOB_MAX
    assert [event.kind for event in found[:2]] == ["Submitted", "HoldRequested"]
    assert (found[1].actor, found[-1].kind) == ("root", "Released")
    ids = [event.id for event in found]
    assert ids[FIRST_KEPT] > ids[FIRST_KEPT - 1] + 1, "the gap is behind the first"
    assert [event.kind for event in store.events(job=other)] == ["Submitted"]


def test_nobody_drops_what_somebody_else_did(store: Store) -> None:
    [job] = accept(store, "a")
    write(store, job, "ann", FIRST_KEPT * 2)
    write(store, job, "root", 3, "CancelRequested")
    write(store, job, "ann", OF_A_JOB_MAX * 2)
    assert [event.kind for event in all_events(store) if event.actor == "root"] == ["CancelRequested"] * 3


def test_what_the_server_does_by_itself_is_not_counted_out(store: Store) -> None:
    [job] = accept(store, "a")
    write(store, job, "swell", OF_A_JOB_MAX * 2, "Running")
    assert len(all_events(store)) == OF_A_JOB_MAX * 2 + 1


def test_of_what_a_person_does_without_a_job_the_newest_stay(store: Store) -> None:
    write(store, None, "swell", 5, "NodeJoined")
    write(store, None, "ben", 5, "TokenCreated")
    write(store, None, "ann", OF_NO_JOB_MAX + 5, "TokenCreated")
    found = all_events(store)
    assert [event.actor for event in found].count("ann") == OF_NO_JOB_MAX
    assert [event.actor for event in found[:10]] == ["swell"] * 5 + ["ben"] * 5
