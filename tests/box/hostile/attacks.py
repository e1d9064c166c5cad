"""What does the hostile user do? Every attack is a name and how it is begun; what the second user feels is measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from box.hostile.stage import ARRAY_TASKS, NOTHING, Felt, Request, Stage
from box.hostile.worst import DOCUMENTS, WORST, checkpoint_report, many_references
from box.machine import wait_for
from swell.notifications.notices import AT_ONCE_PER_USER

FLOOD_THREADS = 16
NOTICES = 20
HANGS = ("sleep", "86399")
VARIABLES = 250_000  # of 4 MB
ENVIRONMENT_BYTES = 4_000_000
ARRAYS = 500
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
    """Each was looked for in the store, on the event loop: more than 150 s."""
    return stage.attacked(many_references(stage), threads=2)


def _environments(stage: Stage) -> AbstractContextManager[None]:
    """Each variable was looked at for each document, on the event loop: 21.7 s."""
    variables = {f"V{number}": "" for number in range(VARIABLES)}
    documents = "---\n".join([stage.waiting("env")] * DOCUMENTS)
    return stage.attacked(stage.submission(documents, env=variables, dry_run=True), threads=8)


def _large_environments(stage: Stage) -> AbstractContextManager[None]:
    """Refused by their size since there are bounds; they were read, all twelve, in 2 s."""
    one = stage.submission(stage.waiting("env"), env={"V": "x" * ENVIRONMENT_BYTES}, dry_run=True)
    return stage.attacked(one, threads=12)


def _arrays(stage: Stage) -> AbstractContextManager[None]:
    """All were accepted, read on the event loop: 17.5 s. One array in each request never hurt (0.6 to 0.9 s)."""
    array = stage.waiting("many", array=f"0-{ARRAY_TASKS - 1}")
    return stage.attacked(stage.submission("---\n".join([array] * ARRAYS)), threads=8)


def _followers(stage: Stage) -> AbstractContextManager[None]:
    """Each looked at the log's file again and again, on the event loop: 42 s."""
    return stage.attacked(Request("GET", f"/api/v1/jobs/{stage.training}/logs?offset=6&wait_s=60"), holds=1000)


def _streams(stage: Stage) -> AbstractContextManager[None]:
    """Each woke at every commit and read the store; and something is committed all the time: 32 s."""
    held = f"/api/v1/jobs/{stage.jobs[-1]}"
    return _together(
        stage.attacked(WORST["POST /api/v1/attempts/{attempt}/trainer-status"](stage), threads=1),
        stage.attacked(Request("POST", f"{held}/hold"), threads=1),
        stage.attacked(Request("POST", f"{held}/release"), threads=1),
        stage.attacked(Request("GET", "/api/v1/events/stream"), holds=1000),
    )


def _unread(stage: Stage) -> AbstractContextManager[None]:
    """All answers were made at once and kept until they were read, which they are not: 113 s."""
    return stage.attacked(Request("GET", "/api/v1/jobs?all=true&all_users=true&lines=true"), holds=600)


def _stopped_look_ups(stage: Stage) -> AbstractContextManager[None]:
    """The threads that look up users waited for them, too: 28 s for who was not known yet."""
    return stage.attacked(checkpoint_report(stage), threads=12, stops="realpath")


@contextmanager
def _hanging_notices(stage: Stage) -> Iterator[None]:
    """Of jobs that have ended; four are under way at once, the others wait behind them for minutes."""
    spec = {"command": ["true"], "notify": list(HANGS)}
    document = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "tells"}, "spec": spec}
    stage.submit("---\n".join([json.dumps(document) + "\n"] * NOTICES))
    wait_for(lambda: stage.hostile_runs(HANGS) >= AT_ONCE_PER_USER, "notices that hang")
    yield


def _half_open(stage: Stage) -> AbstractContextManager[None]:
    """Whose they are the kernel says, so they are the hostile user's; strangers never had a place there."""
    return stage.attacked(NOTHING, holds=4000)


@contextmanager
def _together(*begun: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in begun:
            stack.enter_context(one)
        yield


#: Most stalled the second user for 15 s and more before there were shares. Notices are last: they go on hanging.
ATTACKS = (
    Attack("99,999 references in one cancel", _references),
    Attack("environments of 250,000 variables for 1,000 documents, 8 at once", _environments),
    Attack("environments of 4 MB in one variable, 12 at once", _large_environments),
    Attack("500 arrays of a million tasks in one request, 8 at once", _arrays),
    Attack("1,000 followers of a log", _followers),
    Attack("1,000 event streams while a job reports and another is held and released", _streams),
    Attack("600 clients that never read", _unread),
    Attack("12 threads of reports whose `realpath` is stopped", _stopped_look_ups, is_felt_by_new=True),
    Attack("4,000 half-open connections to the socket of a box", _half_open),
    Attack("20 notices that hang", _hanging_notices, is_felt_by_new=True),
)


def flood(endpoint: str) -> Attack:
    """The heaviest request to one endpoint, from many threads, again and again."""
    return Attack(endpoint, lambda stage: stage.attacked(WORST[endpoint](stage), threads=FLOOD_THREADS))
