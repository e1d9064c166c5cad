"""What does the hostile user do? Every attack is a name and how it is begun; what the second user feels is measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from box.hostile.stage import ARRAY_TASKS, Felt, Request, Stage
from box.hostile.worst import WORST, checkpoint_report, environment_of_four_megabytes, many_references

FLOOD_THREADS = 16
NOTICES = 20
Begin = Callable[[Stage], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Attack:
    """Goes on as long as its context does."""

    name: str
    begin: Begin
    is_felt_by_new: bool = False  #: by a user who has not asked before, too

    def felt(self, stage: Stage, seconds: float) -> Felt:
        stage.calm()
        with self.begin(stage):
            known = stage.feel(seconds)
            return max(known, stage.feel(1.0, is_new=True)) if self.is_felt_by_new else known


def _references(stage: Stage) -> AbstractContextManager[None]:
    return stage.attacked(many_references(stage), threads=2)


def _environments(stage: Stage) -> AbstractContextManager[None]:
    return stage.attacked(environment_of_four_megabytes(stage), threads=12)


def _arrays(stage: Stage) -> AbstractContextManager[None]:
    """Of a million tasks each, submitted and looked at."""
    return _together(
        stage.attacked(stage.submission(stage.waiting("many", array=f"0-{ARRAY_TASKS - 1}")), threads=8),
        stage.attacked(Request("GET", f"/api/v1/jobs/{stage.array}/show"), threads=8),
    )


def _followers(stage: Stage) -> AbstractContextManager[None]:
    """Of a log that grows and one that does not: each looks at it again and again."""
    return stage.attacked(Request("GET", f"/api/v1/jobs/{stage.training}/logs?offset=6&wait_s=60"), holds=1000)


def _streams(stage: Stage) -> AbstractContextManager[None]:
    """Each wakes at every commit; and something is committed all the time."""
    return _together(
        stage.attacked(WORST["POST /api/v1/attempts/{attempt}/trainer-status"](stage), threads=1),
        stage.attacked(Request("GET", "/api/v1/events/stream"), holds=1000),
    )


def _unread(stage: Stage) -> AbstractContextManager[None]:
    return stage.attacked(Request("GET", "/api/v1/jobs?all=true&all_users=true&lines=true"), holds=600)


def _stopped_look_ups(stage: Stage) -> AbstractContextManager[None]:
    return stage.attacked(checkpoint_report(stage), threads=12, stops="realpath")


def _half_open(stage: Stage) -> AbstractContextManager[None]:
    """Connections over loopback that never say anything."""
    return stage.attacked(None, holds=4000)


@contextmanager
def _hanging_notices(stage: Stage) -> Iterator[None]:
    """Of jobs that end at once; the commands that are told of it do not end."""
    document = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "told"}}
    manifest = json.dumps({**document, "spec": {"command": ["true"], "notify": ["sleep", "600"]}}) + "\n"
    told = stage.submit("---\n".join([manifest] * NOTICES))
    stage.machine.until(told[-1], "succeeded")
    yield


@contextmanager
def _together(*begun: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in begun:
            stack.enter_context(one)
        yield


ATTACKS = (
    Attack("99,999 references in one cancel", _references),
    Attack("environments of 4 MB, 12 at once", _environments),
    Attack("arrays of a million tasks", _arrays),
    Attack("1,000 followers of a log", _followers),
    Attack("1,000 event streams while a job reports", _streams),
    Attack("600 clients that never read", _unread),
    Attack("12 threads of reports whose `realpath` is stopped", _stopped_look_ups, is_felt_by_new=True),
    Attack("20 notices that hang", _hanging_notices, is_felt_by_new=True),
    Attack("4,000 half-open connections", _half_open),
)


def flood(endpoint: str) -> Attack:
    """The heaviest request to one endpoint, from many threads, again and again."""
    return Attack(endpoint, lambda stage: stage.attacked(WORST[endpoint](stage), threads=FLOOD_THREADS))
