"""Which pools are there, what have they said, and what should they be told?

A pool is a process elsewhere that reports every few seconds. What its workers look like is kept on disk, because after
a restart of the server a job that only a pool could run must not be refused. Whoever has a pool's key is that pool: a
second one of the same name would start as many workers again.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swell.errors import Conflict, NotFound
from swell.machine.state_folder import write_private
from swell.model.cluster import Node
from swell.model.codec import to_document
from swell.model.pool import PoolPhase, PoolReport, PoolWorker, WorkerRoom, parse_report, worker_at
from swell.planner.why.pools import SILENCE_S

POOLS_MAX = 100  # of one server; each report is looked at with every plan that somebody asks about
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)

log = logging.getLogger(__name__)
PoolEvent = tuple[str, dict[str, Any]]  #: kind and detail


@dataclass(slots=True)
class KnownPool:
    report: PoolReport
    heard_at: float
    kills: dict[str, bool] = field(default_factory=dict)  #: workers that somebody wants to end → at once
    is_stopping: bool = False
    ends_workers: bool = False
    room: WorkerRoom | None = None  #: what its workers had that came since it told its offer; None: none has come
    before: frozenset[str] | None = None  #: workers that it had by then; None: this server has not been told yet
    launched: frozenset[str] = frozenset()  #: workers that it named before anybody of that name had registered


class WorkerPools:
    """Thread-safe."""

    def __init__(self, path: Path | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path  #: None: nothing is kept
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._known = {
            report.name: KnownPool(report, monotonic(), launched=launched) for report, launched in _read(path)
        }
        self.version = 0  #: goes up with every report

    def report(self, told: PoolReport, nodes: Container[str] = ()) -> list[PoolEvent]:
        """What has happened since the last report, for the record. `nodes`: names of the workers that are there."""
        with self._mutex:
            known = self._known.get(told.name)
            if known is None and len(self._known) >= POOLS_MAX:
                raise Conflict(f"{POOLS_MAX} pools are known already; stop one of them first")
            if known is not None and not hmac.compare_digest(known.report.key, told.key):
                if self._silent_s(known) <= SILENCE_S:
                    raise Conflict(
                        f"another pool is called {told.name!r}; give this one another name (--name), or stop that one: "
                        f"swell pool stop {told.name}"
                    )
                known = None
            self.version += 1
            was_kept = None if known is None else _kept(known.report)
            happened = _happened(None if known is None else known.report, told)
            if told.phase is PoolPhase.STOPPED:
                self._known.pop(told.name, None)
            elif known is None:
                self._known[told.name] = KnownPool(told, self._monotonic())
            else:
                if known.report.offer != told.offer:
                    known.room = known.before = None
                known.report, known.heard_at = told, self._monotonic()
                live = {worker.id for worker in told.live}
                known.kills = {worker: is_forced for worker, is_forced in known.kills.items() if worker in live}
            entry = self._known.get(told.name)
            has_launched = entry is not None and self._note_launched(entry, nodes)
            if has_launched or known is None or was_kept != _kept(told) or told.phase is PoolPhase.STOPPED:
                self._write()
            return happened

    def _note_launched(self, entry: KnownPool, nodes: Container[str]) -> bool:
        """True: it has named workers that nobody knew."""
        told = entry.report.workers
        if entry.before is None:
            entry.before = frozenset(worker.id for worker in told)
        new = {one.id for one in told if one.is_live and one.id not in entry.launched and one.id not in nodes}
        entry.launched = frozenset(one.id for one in told if one.id in entry.launched or one.id in new)
        return bool(new)

    def has_launched(self, told: PoolReport, worker: str) -> bool:
        """A worker that somebody has started by hand is no pool's, whatever its name is."""
        with self._mutex:
            known = self._known.get(told.name)
            return known is not None and hmac.compare_digest(known.report.key, told.key) and worker in known.launched

    def note_nodes(self, nodes: Iterable[Node]) -> None:
        """What workers really offer counts where it is less than their pool says."""
        with self._mutex:
            pools = {
                worker.id: known
                for known in self._known.values()
                for worker in known.report.live
                if known.before is not None and worker.id not in known.before
            }
            for node in nodes:
                known = pools.get(worker_at(node.id))
                if known is not None:
                    known.room = WorkerRoom.of(node).at_least(known.room)

    def all(self) -> list[tuple[PoolReport, float, WorkerRoom | None]]:
        """Their last reports, seconds since, and what their workers had, if any has come; sorted by name.

        One that somebody has stopped and that is not heard of any more has ended without a last report.
        """
        with self._mutex:
            ended = [name for name, one in self._known.items() if one.is_stopping and self._silent_s(one) > SILENCE_S]
            for name in ended:
                del self._known[name]
            if ended:
                self._write()
            return [(one.report, self._silent_s(one), one.room) for _, one in sorted(self._known.items())]

    def may_come(self, workers: int) -> tuple[Node, ...]:
        """Nodes that pools could bring, at most so many of each.

        Also of pools that nobody has heard of for a while, but not of those that somebody has stopped.
        """
        with self._mutex:
            known = [one for _, one in sorted(self._known.items()) if not one.is_stopping]
        return tuple(
            one.report.offer.limited_to(one.room).node(f"~{one.report.name}~{number}")
            for one in known
            for number in range(min(workers, one.report.workers_max))
        )

    def find(self, name: str) -> KnownPool:
        with self._mutex:
            known = self._known.get(name)
            if known is None:
                there = f"there are: {', '.join(sorted(self._known))}" if self._known else "no pool is known here"
                raise NotFound(f"there is no pool {name[:100]!r}; {there} (`swell pool ps` lists pools)")
            return replace(known, kills=dict(known.kills))

    def stop(self, name: str, *, ends_workers: bool) -> bool:
        """True: it is told with its next report. False: nobody has heard of it for long, and it is forgotten."""
        self.find(name)
        with self._mutex:
            known = self._known[name]
            if self._silent_s(known) > SILENCE_S:
                del self._known[name]
                self._write()
                return False
            known.is_stopping, known.ends_workers = True, known.ends_workers or ends_workers
            return True

    def kill(self, worker: str, *, is_forced: bool) -> tuple[PoolReport, PoolWorker]:
        """By its name in `swell nodes`, or by what its backend calls it."""
        with self._mutex:
            found = [
                (known, one)
                for known in self._known.values()
                for one in known.report.live
                if worker in (one.id, one.backend_id) or worker_at(worker) == one.id
            ]
            if not found:
                raise NotFound(f"no pool has a worker {worker[:100]!r}; `swell pool ps` lists them")
            if len(found) > 1:
                names = ", ".join(f"{one.id} of pool {known.report.name}" for known, one in found)
                raise Conflict(f"{worker[:100]!r} could be {names}; say which by its name")
            known, one = found[0]
            known.kills[one.id] = is_forced or known.kills.get(one.id, False)
            return known.report, one

    def _silent_s(self, known: KnownPool) -> float:
        return self._monotonic() - known.heard_at

    def _write(self) -> None:
        if self._path is None:
            return
        kept = [
            {**to_document(_kept(one.report)), "launched": sorted(one.launched)}
            for _, one in sorted(self._known.items())
        ]
        try:
            write_private(self._path, json.dumps(kept))
        except OSError as error:  # a full disk: they are known until the server ends
            log.warning("the pools cannot be written to %s: %s", self._path, error)


def _kept(report: PoolReport) -> PoolReport:
    return PoolReport(report.name, report.kind, report.key, report.offer, report.workers_min, report.workers_max)


def _read(path: Path | None) -> list[tuple[PoolReport, frozenset[str]]]:
    """Empty: there is none, or a power cut has left half of one."""
    if path is None:
        return []
    try:
        kept = [(dict(one), one.get("launched", [])) for one in json.loads(path.read_text())]
        return [
            (parse_report({field: value for field, value in one.items() if field != "launched"}), frozenset(launched))
            for one, launched in kept
        ]
    except (OSError, *UNREADABLE):
        return []


def _happened(before: PoolReport | None, now: PoolReport) -> list[PoolEvent]:
    about = {"pool": now.name, "kind": now.kind}
    found: list[PoolEvent] = [("PoolStarted", about)] if before is None else []
    known = {} if before is None else {worker.id: worker for worker in before.workers}
    for worker in now.workers:
        detail = {**about, "worker": worker.id, "backend_id": worker.backend_id}
        earlier = known.get(worker.id)
        is_new = earlier is None or not earlier.backend_id  # it is named before its backend is asked to start it
        if before is not None and is_new and worker.backend_id and worker.is_live:
            found.append(("PoolWorkerLaunched", detail))
        elif earlier is not None and earlier.is_live and not worker.is_live:
            found.append(("PoolWorkerEnded", {**detail, "state": worker.word, "detail": worker.detail}))
    was = PoolPhase.RUNNING if before is None else before.phase
    if now.phase is not was and now.phase in (PoolPhase.FAILING, PoolPhase.BLIND):
        found.append(("PoolFailing", {**about, "problem": now.problem}))
    if now.phase is PoolPhase.RUNNING and was in (PoolPhase.FAILING, PoolPhase.BLIND):
        found.append(("PoolRecovered", about))
    if now.phase is PoolPhase.STOPPED:
        found.append(("PoolStopped", about))
    return found
