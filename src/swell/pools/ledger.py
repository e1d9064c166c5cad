"""Which workers has this pool launched, and what became of each?

On disk, written before a launch is sent: a pool that is killed between the two knows afterwards that the worker may be
there, and counts it until the backend has shown it or should have. The backend's listing lags behind what was launched
(squeue up to half a minute), and a backend without accounting forgets what has ended; the ledger bridges both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from swell.model.codec import from_document, to_document
from swell.model.pool import PoolWorker, worker_at
from swell.pools.backend import BackendWorker, WorkerState

SHOWN_S = 120.0  # a launched worker that no listing has shown for so long is not there
ENDED_KEPT_S = 600.0  # for `swell pool ps`
ENDED_KEPT_MAX = 50


@dataclass(frozen=True, slots=True)
class LaunchedWorker:
    """One worker that was launched."""

    id: str
    launched_at: float  #: by the wall clock: it outlives this process
    backend_id: str = ""  #: empty: the backend has not answered, or not yet
    state: WorkerState = WorkerState.PENDING
    word: str = ""
    detail: str = ""
    log: str = ""
    is_standing: bool = False  #: it keeps the minimum, and does not leave when it is idle
    has_registered: bool = False  #: it is, or was, a node since the backend started it
    running_since: float | None = None  #: None: it was not seen to run
    seen_at: float | None = None  #: None: no listing has shown it
    ended_at: float | None = None  #: None: it has not ended
    is_gone: bool = False  #: the backend has seen that nothing of its last run runs
    last_run: int = 0  #: the least number that this run can have (model/pool.py: `run_at`)
    was_cancelled: bool = False  #: by us: that it did not register is no failure

    @property
    def is_live(self) -> bool:
        return self.ended_at is None

    @property
    def is_under_way(self) -> bool:
        """It may still become a node."""
        return self.is_live and not self.has_registered

    def reported(self) -> PoolWorker:
        state = "ended" if self.ended_at is not None else str(self.state)
        told = (_line(self.word), _line(self.detail), _line(self.log))
        return PoolWorker(
            self.id, _line(self.backend_id), state, *told, self.has_registered, self.is_gone, self.last_run
        )


def _line(text: str) -> str:
    """What a report may carry."""
    return "".join(char if char.isprintable() else " " for char in text)[:1000]


@dataclass(frozen=True, slots=True)
class Folded:
    """The ledger after one look, and what was learnt."""

    entries: tuple[LaunchedWorker, ...]
    failed: tuple[LaunchedWorker, ...] = ()  #: ended before they were a node of the server
    registered: tuple[str, ...] = ()  #: became nodes since the last look


def fold(
    entries: Iterable[LaunchedWorker],
    seen: Iterable[BackendWorker],
    present: Iterable[str],
    known: Iterable[str] = (),
    *,
    now: float,
) -> Folded:
    """What the backend shows, which nodes the server has, and which workers it has known, added to the ledger."""
    shown = {worker.id: worker for worker in seen}
    nodes, came = frozenset(map(worker_at, present)), frozenset(known)
    before = {entry.id: entry for entry in entries}
    adopted = {
        name: LaunchedWorker(name, now, worker.backend_id) for name, worker in shown.items() if name not in before
    }  # of a ledger that was lost, or of another machine's
    after = [
        _look(entry, shown.get(name), is_node=name in nodes, now=now) for name, entry in {**before, **adopted}.items()
    ]
    failed = [
        entry
        for entry in after
        if not entry.is_live
        and not entry.has_registered
        and entry.id not in came
        and not entry.was_cancelled
        and entry.id in before
        and before[entry.id].is_live
    ]
    registered = [
        entry.id
        for entry in after
        if entry.has_registered and entry.id in before and not before[entry.id].has_registered
    ]
    return Folded(_forget(after, now), tuple(failed), tuple(registered))


def _look(entry: LaunchedWorker, worker: BackendWorker | None, *, is_node: bool, now: float) -> LaunchedWorker:
    if is_node:
        entry = replace(entry, has_registered=True)
    if not entry.is_live and (worker is None or not worker.is_live):
        return entry
    if worker is None:
        is_too_new = entry.seen_at is None and now - entry.launched_at <= SHOWN_S
        if is_node or is_too_new:  # the listing is behind
            return entry
        return replace(entry, ended_at=now, word=entry.word or "not listed", detail=_vanished(entry))
    is_running = worker.state is WorkerState.RUNNING
    is_again = worker.state is WorkerState.PENDING  # the node of its last run, if it had one, is lost
    since = (entry.running_since or now) if is_running else None
    return replace(
        entry,
        backend_id=worker.backend_id,
        state=worker.state,
        word=worker.word,
        detail=worker.detail,
        log=worker.log or entry.log,
        seen_at=now,
        running_since=since,
        has_registered=entry.has_registered and not is_again,
        ended_at=None if worker.is_live else now,
        is_gone=worker.is_proof,
        last_run=worker.last_run,
    )


def _vanished(entry: LaunchedWorker) -> str:
    if entry.seen_at is None:
        return "the backend has never listed it"
    return entry.detail or f"the backend does not list it any more; its last state was {entry.word}"


def _forget(entries: list[LaunchedWorker], now: float) -> tuple[LaunchedWorker, ...]:
    live = [entry for entry in entries if entry.is_live]
    ended = [entry for entry in entries if entry.ended_at is not None and now - entry.ended_at <= ENDED_KEPT_S]
    ended.sort(key=lambda entry: entry.ended_at or 0.0)
    return tuple(sorted((*live, *ended[-ENDED_KEPT_MAX:]), key=lambda entry: (entry.launched_at, entry.id)))


@dataclass(frozen=True, slots=True)
class LaunchTotals:
    """Of a pool since it was made; with the ledger on disk."""

    launched: int = 0
    failed: int = 0  #: starts that failed
    failures: int = 0  #: since the last start that worked
    failed_at: float = 0.0  #: when the last of them failed
    launched_at: float = 0.0  #: when the last were launched
    problem: str = ""  #: of the last failure; empty: none since the last start that worked


NO_TOTALS = LaunchTotals()


@dataclass(frozen=True, slots=True)
class LaunchLedger:
    entries: tuple[LaunchedWorker, ...] = ()
    totals: LaunchTotals = NO_TOTALS


def read_ledger(path: Path) -> LaunchLedger:
    """Empty: there is none yet. One that cannot be read is treated so, too: the backend's listing fills it again."""
    try:
        return from_document(LaunchLedger, json.loads(path.read_text()))
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        return LaunchLedger()


def ledger_text(ledger: LaunchLedger) -> str:
    document: Mapping[str, object] = to_document(ledger)
    return json.dumps(document)
