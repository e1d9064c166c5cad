"""Whatever text comes, it is written down; and what cannot be written is found without the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.jobs import accept, new_job
from swell.store import Acceptance, AttemptRecord, Changes, EventRecord, Store, TaskRecord
from swell.store.storable import storable, storable_text

ODD = "a\udcffb\0c\ud800\U0001f600\u202e"
SHOWN = "a\\udcffb\\x00c\\ud800\U0001f600\u202e"


def test_text_that_no_database_takes_is_shown_as_escapes_and_found_again(store: Store) -> None:
    """A workdir with a byte that is no UTF-8 stopped a box for everybody: a task's problem is plain text."""
    [job] = accept(store, "a")
    task = TaskRecord(job, 1, 0, ODD, 0, 1.0, 2.0, 1, "start-failed", ODD)
    store.record(
        Changes(
            jobs={job: {"name": ODD, "problem": ODD, "held_by": ODD, "reason_evidence": {"problem": ODD}}},
            tasks=[task],
            events=[EventRecord("Held", job, ODD, {"by": ODD}, origin=ODD)],
        )
    ).result()
    record = store.job(job)
    assert (record.name, record.problem, record.held_by) == (SHOWN, SHOWN, SHOWN)
    assert record.reason_evidence == {"problem": ODD}, "documents give back what was put in"
    assert store.tasks(job) == [TaskRecord(job, 1, 0, SHOWN, 0, 1.0, 2.0, 1, "start-failed", SHOWN)]
    [event] = store.events(job=job, after=1)
    assert (event.actor, event.detail, event.origin) == (SHOWN, {"by": ODD}, SHOWN)
    assert [found.id for found in store.jobs_named(ODD, limit=9)] == [job]


def test_commands_paths_and_environments_come_back_as_they_were(store: Store) -> None:
    odd = "a\udcffb\u202e"  # a null character is refused at submission: no program can be given one
    new = new_job(command=["echo", odd], workdir=f"/{odd}", env={"B": odd})
    [record] = store.accept([new], Acceptance(key=odd, digest=odd)).result()
    read = store.job(record.id).spec
    assert (read.roles[0].command, read.workdir) == (("echo", odd), f"/{odd}")
    assert store.environment(record.environment) == {"B": odd}
    assert store.knows_key(odd)


@given(st.text(st.characters(categories=("Cs", "Cc", "Co", "Lu", "So"))))
@settings(max_examples=300)
def test_any_text_can_be_written_and_plain_text_is_left_alone(text: str) -> None:
    shown = storable_text(text)
    assert "\0" not in shown
    assert shown.encode().decode() == shown
    assert storable_text(shown) == shown
    assert json.loads(storable_text(json.dumps({"a": text}))) == {"a": text}


def test_values_of_one_row_and_of_many_are_made_storable() -> None:
    assert storable(("a\0", 1, None, b"\0")) == ("a\\x00", 1, None, b"\0")
    assert storable([("a\0",), {"b": "\0"}]) == [("a\\x00",), {"b": "\\x00"}]


UNSTORABLE: list[tuple[str, Changes]] = [
    ("job", Changes(jobs={7: {"exit_code": 2**70}})),
    ("attempt", Changes(attempts=[AttemptRecord(7, 2**70, 1, (), 1, 1.0, None, None, None, [])])),
    ("task", Changes(tasks=[TaskRecord(7, 1, 0, "n", 0, float("nan"), None, None)])),
    ("event", Changes(events=[EventRecord("Held", 7, detail={"a": object()})])),
]


@pytest.mark.parametrize(("what", "bad"), UNSTORABLE)
def test_whose_part_cannot_be_written_is_told_and_nothing_is_written(store: Store, what: str, bad: Any) -> None:
    jobs = accept(store, *"abcdefgh")
    good = {job: {"priority": 3} for job in jobs}
    whole = Changes(good | bad.jobs, bad.attempts, bad.tasks, [EventRecord("NodeJoined"), *bad.events])
    before = store.last_event_id()
    assert list(store.unstorable(whole).result()) == [7], what
    assert {store.job(job).priority for job in jobs} == {0}
    assert store.last_event_id() == before
    assert store.unstorable(Changes(good)).result() == {}
