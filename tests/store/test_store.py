"""What the store promises: durable, atomic, and nothing forgotten that should be kept."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import create_engine

from store.jobs import accept, end, new_job
from swell.errors import Conflict, NotFound, TooMany
from swell.model.identity import Identity
from swell.model.job import JobState
from swell.model.plan import Slot
from swell.model.quota import Quota
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.store import Acceptance, AttemptRecord, Changes, EventRecord, JobStatus, Outline, TaskRecord, open_store
from swell.store.writer import Work, Writer


def rows(tmp_path, query: str) -> list[Any]:
    """What another process would see."""
    with closing(sqlite3.connect(tmp_path / "swell.db")) as connection:
        return connection.execute(query).fetchall()


def test_an_accepted_job_is_there_for_every_other_process_when_the_reply_comes(store, tmp_path):
    accept(store, "a")
    assert rows(tmp_path, "SELECT id, name, state, reason_code FROM job") == [(1, "a", "queued", "NotYetPlanned")]


def test_who_cancels_a_job_that_waits_has_room_for_another_at_once(store):
    """Also before the next cycle has carried it out."""
    [first, _] = accept(store, "a", "b")
    more = [new_job("c")]
    with pytest.raises(TooMany):
        store.accept(more, Acceptance(quota=Quota(queued=2))).result()
    store.request_cancel([first], by="ann", grace_s=None).result()
    [third] = store.accept(more, Acceptance(quota=Quota(queued=2))).result()
    assert [store.job(job).state for job in (first, third.id)] == [JobState.QUEUED, JobState.QUEUED]


def test_who_submitted_a_job_to_a_cluster_is_known_with_all_that_names_them(store):
    eva = Identity("eva", ("ml", "system:authenticated"), "u-1", (("scopes", ("user:full", "user:info")),))
    new = [replace(new_job("hers"), identity=eva), new_job("somebodys")]
    accepted = store.accept(new).result()
    stored = [store.job(one.id) for one in accepted]
    assert [one.submitter for one in (*accepted, *stored)] == [eva, None] * 2


def test_an_accepted_job_survives_kill_9(tmp_path):
    code = """
import os, signal, sys, time
from pathlib import Path
from swell.manifests import Context, read_document
from swell.store import NewJob, open_store
spec = read_document({"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["true"]}}, Context("/"))
open_store(Path(sys.argv[1]), time.time).accept([NewJob(spec, "ann", {})]).result()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "swell.db")], check=False)
    assert done.returncode == -9
    assert rows(tmp_path, "SELECT name, state FROM job") == [("true", "queued")]
    assert rows(tmp_path, "SELECT kind, job_id FROM event") == [("Submitted", 1)]


def test_every_commit_is_brought_to_the_disk(store):
    """FULL: SQLite calls fsync for every commit, so that a power cut takes nothing that was accepted."""
    modes = store._writer.submit(
        lambda connection: [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
        ]
    )
    assert modes.result() == ["wal", 2]


def test_what_is_accepted_is_returned_as_it_is_stored(store, clock):
    [accepted] = store.accept([new_job("a", gpus="1..2", priority=3)]).result()
    assert store.job(accepted.id) == accepted
    assert accepted.spec == new_job("a", gpus="1..2", priority=3).spec
    assert (accepted.submitted_at, accepted.started_at, accepted.exit_code) == (clock.time, None, None)


def test_several_jobs_are_accepted_all_or_none(store, tmp_path):
    broken = replace(new_job("b"), environment={"A": object()})
    with pytest.raises(TypeError):
        store.accept([new_job("a"), broken], Acceptance(key="k", digest="d")).result()
    assert rows(tmp_path, "SELECT count(*) FROM job UNION ALL SELECT count(*) FROM event") == [(0,), (0,)]
    assert rows(tmp_path, "SELECT count(*) FROM idempotency") == [(0,)]
    assert accept(store, "c") == [1]


def test_the_same_key_again_answers_with_the_jobs_of_the_first_time(store, tmp_path):
    first = store.accept([new_job("a"), new_job("b")], Acceptance(key="k", digest="d")).result()
    again = store.accept([new_job("a"), new_job("b")], Acceptance(key="k", digest="d")).result()
    assert again == first
    assert rows(tmp_path, "SELECT count(*) FROM job") == [(2,)]


def test_the_same_key_waiting_for_the_same_commit_is_still_one_job(store, tmp_path):
    futures = [store.accept([new_job("a")], Acceptance(key="k", digest="d")) for _ in range(20)]
    assert {job.id for future in futures for job in future.result()} == {1}
    assert rows(tmp_path, "SELECT count(*) FROM job") == [(1,)]


def test_a_key_used_for_something_else_is_a_conflict_and_changes_nothing(store, tmp_path):
    store.accept([new_job("a")], Acceptance(key="k", digest="d")).result()
    with pytest.raises(Conflict, match="the idempotency key 'k' was already used for another submission; use a new"):
        store.accept([new_job("b")], Acceptance(key="k", digest="e")).result()
    assert rows(tmp_path, "SELECT name FROM job") == [("a",)]


def test_a_key_whose_jobs_were_deleted_does_not_run_them_again(store):
    [job] = store.accept([new_job("a")], Acceptance(key="k", digest="d")).result()
    end(store, job.id, at=5.0)
    store.forget([job.id], by="ann").result()
    with pytest.raises(Conflict, match="the idempotency key 'k' stands for jobs that have been deleted"):
        store.accept([new_job("a")], Acceptance(key="k", digest="d")).result()


def test_of_many_under_keys_of_their_own_those_that_came_before_are_the_same_and_the_others_new(store):
    [first, gone] = store.accept_each({"k1": new_job("a"), "k2": new_job("b")}, origin="x").result()
    store.forget([gone.id], by="me").result()

    again = store.accept_each({"k3": new_job("c"), "k2": new_job("b"), "k1": new_job("a")}, origin="x").result()

    assert [one if one is None else (one.id, one.name) for one in again] == [(3, "c"), None, (1, "a")]
    assert again[2] == store.job(first.id)
    assert [(event.job_id, event.kind, event.origin) for event in store.events()] == [
        (1, "Submitted", "x"),
        (2, "Submitted", "x"),
        (2, "Deleted", ""),
        (3, "Submitted", "x"),
    ]


def test_none_under_keys_of_their_own_are_none(store):
    assert store.accept_each({}).result() == []


def test_an_environment_is_kept_once_by_its_hash(store, tmp_path):
    environment = {"B": "2", "A": "caf\udce9"}
    accept(store, "a", "b", env=environment)
    accept(store, "c", env=dict(reversed(environment.items())))
    accept(store, "d", env={})
    assert rows(tmp_path, "SELECT count(*) FROM environment") == [(2,)]
    digest = hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()
    assert store.job(1).environment == store.job(3).environment == digest
    assert store.environment(digest) == environment
    with pytest.raises(NotFound):
        store.environment("no such hash")


def test_an_environment_goes_with_the_last_job_that_has_it(store, tmp_path):
    accept(store, "a", "b", env={"SECRET": "x"})
    store.forget([1], by="ann").result()
    assert rows(tmp_path, "SELECT count(*) FROM environment") == [(1,)]
    store.forget([2], by="ann").result()
    assert rows(tmp_path, "SELECT count(*) FROM environment") == [(0,)]


def test_a_manifest_is_kept_once_by_its_hash_and_a_job_may_have_none(store, tmp_path):
    manifest = {"kind": "PyTorchJob", "spec": {"runPolicy": {"suspend": True}}}
    other = {"spec": {"runPolicy": {"suspend": True}}, "kind": "PyTorchJob"}
    new = [replace(new_job("a"), manifest=manifest), replace(new_job("b"), manifest=other), new_job("c")]
    accepted = store.accept(new).result()
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    assert [job.manifest for job in accepted] == [digest, digest, ""]
    assert [store.job(job.id).manifest for job in accepted] == [digest, digest, ""]
    assert (store.manifest(digest), rows(tmp_path, "SELECT hash FROM manifest")) == (manifest, [(digest,)])
    with pytest.raises(NotFound, match="there is no manifest of-nobody"):
        store.manifest("of-nobody")


def test_a_manifest_goes_with_the_last_job_that_has_it(store, tmp_path):
    store.accept([replace(new_job(name), manifest={"kind": "Job"}) for name in ("a", "b")]).result()
    accept(store, "without")
    store.forget([1], by="ann").result()
    assert rows(tmp_path, "SELECT count(*) FROM manifest") == [(1,)]
    store.forget([2], by="ann").result()
    assert rows(tmp_path, "SELECT count(*) FROM manifest") == [(0,)]


def attempt(job: int, number: int = 1, **changes: Any) -> AttemptRecord:
    slots = (Slot(0, "n1", Resources(1000, 5, 1), ("gpu-0",)), Slot(1, "n2", Resources(1000, 5, 0), (), True))
    placements = [{"task": 0, "node": "n1", "devices": ["gpu-0"]}]
    record = AttemptRecord(job, number, 2, slots, 1, 5.0, None, None, None, placements)
    return replace(record, **changes)


def task(job: int, index: int = 0, **changes: Any) -> TaskRecord:
    return replace(TaskRecord(job, 1, index, "n1", 0, 6.0, None, None), **changes)


def test_what_a_cycle_changes_is_read_back_as_it_was_written(store):
    accept(store, "a", "b")
    changes = Changes(attempts=[attempt(1)], tasks=[task(1), task(1, 1)], generation=7)
    changes.set_job(1, state="failed", reason_code="TaskFailed", reason_evidence={"rank": 0}, nodes=("n1", "n2"))
    changes.set_job(2, width=3)
    changes.events.append(EventRecord("Started", 1, detail={"width": 2}))
    store.record(changes).result()
    job = store.job(1)
    assert (job.state, job.reason_code, job.reason_evidence) == (JobState.FAILED, Code.TASK_FAILED, {"rank": 0})
    assert (job.nodes, job.version, store.job(2).width) == (("n1", "n2"), 2, 3)
    assert store.attempts(1) == store.open_attempts() == [attempt(1)]
    assert store.tasks(1) == [task(1), task(1, 1)]
    assert (store.task(1, 1, 1), store.task(1, 2, 0)) == (task(1, 1), None)
    assert store.generation() == 7
    assert store.events(job=1)[-1].detail == {"width": 2}


def test_the_same_fact_twice_is_one_row_with_the_latest_word(store):
    accept(store, "a")
    for changes in (Changes(attempts=[attempt(1)], tasks=[task(1)]),) * 2:
        store.record(changes).result()
    ended = Changes(attempts=[attempt(1, ended_at=9.0, outcome="failed")], tasks=[task(1, ended_at=9.0, exit_code=3)])
    store.record(ended).result()
    assert store.tasks(1) == [task(1, ended_at=9.0, exit_code=3)]
    assert [one.outcome for one in store.attempts(1)] == ["failed"]
    assert store.open_attempts() == []


def test_every_change_of_a_job_raises_its_version(store):
    accept(store, "a")
    store.request_cancel([1], by="ann", grace_s=2.5).result()
    job = store.job(1)
    assert (job.version, job.cancel_requested_by, job.cancel_grace_s) == (2, "ann", 2.5)
    assert store.events(job=1)[-1].kind == "CancelRequested"


def test_a_deleted_job_is_gone_and_its_events_stay_as_the_audit_trail(store, tmp_path):
    accept(store, "a", "b")
    store.record(Changes(attempts=[attempt(1), attempt(2)], tasks=[task(1), task(2)])).result()
    store.forget([1], by="bob").result()
    with pytest.raises(NotFound, match="there is no job 1; `swell ps -a` lists all"):
        store.job(1)
    assert (store.attempts(1), store.tasks(1), len(store.attempts(2)), len(store.tasks(2))) == ([], [], 1, 1)
    assert [(event.kind, event.actor) for event in store.events(job=1)] == [("Submitted", "ann"), ("Deleted", "bob")]


def test_an_id_is_never_used_again(store):
    accept(store, "a", "b")
    store.forget([1, 2], by="ann").result()
    assert accept(store, "c") == [3]


def test_active_jobs_are_listed_first_and_ended_ones_newest_first(store):
    accept(store, "a", "b", "c", "d", "e")
    for job, at in ((1, 10.0), (4, 30.0), (5, 20.0)):
        end(store, job, at)

    def listed(**options: Any) -> tuple[list[int], int]:
        jobs, not_shown = store.listing(**{"ended_since": None, **options})
        return [job.id for job in jobs], not_shown

    assert listed() == ([2, 3, 4, 5, 1], 0)
    assert listed(ended_since=20.0) == ([2, 3, 4, 5], 0)
    assert listed(limit=3) == ([2, 3, 4], 2)
    assert listed(owner="bob") == ([], 0)
    assert [job.id for job in store.active()] == [2, 3]
    assert store.counts() == {"queued": 2, "succeeded": 3}


def test_of_one_name_the_newest_comes_first(store):
    accept(store, "a", "b", "a")
    assert [job.id for job in store.jobs_named("a", limit=8)] == [3, 1]
    assert [job.id for job in store.jobs_named("a", limit=1)] == [3]
    assert store.count_named("a") == 2
    assert store.jobs_named("c", limit=8) == []
    assert store.names() == ["a", "b"]


def test_states_are_counted_of_what_is_listed(store):
    accept(store, *"abc")
    accept(store, "d", owner="bob")
    end(store, 1, 10.0)
    end(store, 2, 30.0, JobState.FAILED)
    assert store.counts() == {"queued": 2, "succeeded": 1, "failed": 1}
    assert store.listed_counts(ended_since=20.0) == {"queued": 2, "failed": 1}
    assert store.listed_counts(ended_since=None, owner="ann") == {"queued": 1, "succeeded": 1, "failed": 1}
    assert store.waiting() == {"NotYetPlanned": 2}


def test_retention_finds_what_ended_before_a_moment_oldest_first_and_no_more_than_asked(store):
    accept(store, *"abcde")
    for job, at in ((1, 10.0), (2, 30.0), (3, 5.0), (4, 10.0)):
        end(store, job, at)
    assert store.ended_before(20.0, limit=10) == [1, 3, 4]
    assert store.ended_before(20.0, limit=2) == [1, 3]


def test_old_events_and_keys_go_when_their_time_has_come(store, clock, tmp_path):
    store.accept([new_job("a")], Acceptance(key="old", digest="d")).result()
    clock.time += 100
    store.accept([new_job("b")], Acceptance(key="new", digest="d")).result()
    store.forget_events(clock.time - 50).result()
    assert [event.job_id for event in store.events()] == [2]
    assert rows(tmp_path, "SELECT key FROM idempotency") == [("new",)]
    assert rows(tmp_path, "SELECT count(*) FROM job") == [(2,)]


def test_events_are_read_in_pages_from_where_the_last_one_ended(store):
    accept(store, *"abcde")
    first = store.events(limit=2)
    assert [event.job_id for event in first] == [1, 2]
    assert [event.job_id for event in store.events(after=first[-1].id, limit=2)] == [3, 4]
    assert [event.job_id for event in store.events(after=2, job=5)] == [5]
    assert store.last_event_id() == 5


def test_the_identity_of_a_store_stays_when_it_is_opened_again(store, tmp_path, clock):
    accept(store, "a")
    identity = store.id
    store.close()
    again = open_store(tmp_path / "swell.db", clock)
    assert again.id == identity
    assert again.job(1).name == "a"
    again.close()


def test_whoever_listens_hears_after_the_commit_and_not_before(store, tmp_path):
    heard: list[Any] = []
    store.listen(lambda: heard.append(rows(tmp_path, "SELECT count(*) FROM job")))
    accept(store, "a")
    store.close()  # the listener runs in the writer's thread
    assert heard == [[(1,)]]


def test_outlines_say_how_active_jobs_stand(store, clock):
    ended, waiting, running = accept(store, "a", "b", "c")
    end(store, ended, clock.time)
    values = {"state": "running", "reason_code": None, "width": 4, "attempts": 2}
    store.record(Changes(jobs={running: values})).result()
    assert sorted(store.outlines(), key=lambda job: job.id) == [
        Outline(waiting, JobState.QUEUED, Code.NOT_YET_PLANNED, 0, 0),
        Outline(running, JobState.RUNNING, None, 4, 2),
    ]
    assert Outline.of(store.job(running)) == Outline(running, JobState.RUNNING, None, 4, 2)


#: of each type a value that no new job has
ODD = {"int": 3, "float": 2.5, "str": "odd", "JobState": JobState.RUNNING, "Code": Code.STARTING}
ODD |= {"Evidence": {"nodes": "n1"}, "tuple[str, ...]": ("n1", "n2")}


def test_every_field_of_a_jobs_status_is_stored_and_read_again(store):
    """Whoever adds a column adds a field, the table's column and a migration, and nothing else."""
    [job] = accept(store, "a")
    status = JobStatus(**{one.name: ODD[str(one.type).removesuffix(" | None")] for one in fields(JobStatus)})
    store.record(Changes(jobs={job: status.columns()})).result()
    assert JobStatus.of(store.job(job)) == status


def test_what_is_small_waits_for_one_large_piece_of_work_at_the_most(tmp_path):
    """Submissions of a thousand jobs gathered in one commit, and everybody's `swell run` waited for all of them."""
    engine = create_engine(f"sqlite:///{tmp_path / 'db'}")
    begun, go_on, written = threading.Event(), threading.Event(), []

    def first(_: object) -> None:
        begun.set()
        assert go_on.wait(60)

    def writing(name: str) -> Work:
        return lambda _: written.append(name)

    writer = Writer(engine, lambda _: written.append("commit"))
    futures = [writer.submit(first)]
    assert begun.wait(60)
    for number in range(2):
        futures.append(writer.submit(writing(f"large {number}"), rows=1000))
        futures.append(writer.submit(writing(f"small {number}")))
    go_on.set()
    writer.close()
    assert all(future.done() for future in futures)
    assert written == ["commit", "large 0", "commit", "small 0", "small 1", "commit", "large 1", "commit"]
