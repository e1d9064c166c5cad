"""One turn of a pool: look, ask, decide, act; and again.

The only part of a pool with effects. Whatever fails is quoted in the next report, and the turn goes on as far as it
can: a backend that does not answer is no reason to be silent towards the server, and the other way round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import starmap
from typing import Protocol

from swell.errors import Rejected, SwellError
from swell.machine.state_folder import write_private
from swell.model.pool import PoolDemand, PoolPhase, PoolReport
from swell.model.quantity import number_of
from swell.pools.backend import BackendWorker, PoolBackend, WorkerOrder
from swell.pools.decide import Decision, PoolFacts, decide, retry_s
from swell.pools.folder import PoolFolder
from swell.pools.ledger import Folded, LaunchedWorker, LaunchLedger, LaunchTotals, fold, ledger_text, read_ledger
from swell.pools.options import PoolOptions

log = logging.getLogger(__name__)


class PoolServer(Protocol):
    """The server, as a pool needs it. Raises `SwellError` where it does not answer, or refuses."""

    def sync(self, report: PoolReport) -> PoolDemand:
        """Tell it how things stand; what the waiting jobs lack."""

    def worker_token(self, group: str) -> tuple[str, float]:
        """A token for workers, and until when it is good (by the wall clock)."""


class PoolLoop:
    """Its memory is the ledger in its folder; all else is asked anew in each turn."""

    def __init__(
        self,
        options: PoolOptions,
        backend: PoolBackend,
        server: PoolServer,
        folder: PoolFolder,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._backend = backend
        self._server = server
        self._folder = folder
        self._now = now
        self._key = folder.key()
        self._ledger = read_ledger(folder.ledger)
        self._failed_before = self._ledger.totals.failed  #: starts, of processes of before
        self._present: tuple[str, ...] = ()
        self._surplus_since: float | None = None
        self._is_stopping = False
        self._trouble = ""  #: what could not be asked in this turn; empty: nothing
        self._silence = ""  #: why the server has not heard what was told last; empty: it has
        self.is_over = False

    def run(self, stop: threading.Event) -> None:
        """Until somebody stops it, here or through the server. Raises what the server refuses."""
        while not self.is_over and not stop.is_set():
            try:
                self.turn()
            except OSError as error:  # a full disk: what cannot be written down is not launched
                self._trouble = f"the folder of the pool cannot be written: {error}"
                log.warning("%s", self._trouble)
            if not self.is_over:
                stop.wait(self._options.sleep_s)
        if self.is_over:
            self._tell(replace(self._report(self._ledger.entries), phase=PoolPhase.STOPPED))
            log.info("the pool %s has stopped; workers with jobs leave when they are idle", self._options.name)

    def once(self) -> tuple[int, str]:
        """One turn alone: the workers that were launched in it, and what went wrong; empty: nothing did.

        Without workers it is no pool any more: nobody would start one for the jobs that the server admits for it.
        """
        before, failed = {entry.id for entry in self._ledger.entries}, self._ledger.totals.failed
        self.introduce()
        self.turn()
        live = [entry for entry in self._ledger.entries if entry.is_live]
        problem = self._trouble or (self._ledger.totals.problem if self._ledger.totals.failed > failed else "")
        problem = problem or self._silence
        if not live:
            self._tell(replace(self._report(self._ledger.entries), phase=PoolPhase.STOPPED))
        return sum(entry.id not in before for entry in live), problem

    @property
    def summary(self) -> str:
        """In words, after a turn."""
        live = [entry for entry in self._ledger.entries if entry.is_live]
        coming = sum(entry.is_under_way for entry in live)
        problem = self._trouble or self._ledger.totals.problem
        said = f"pool {self._options.name}: {number_of(len(live), 'worker')}, {coming} of them on their way"
        return f"{said}; {problem}" if problem else said

    def introduce(self) -> None:
        """Tell the server what its workers would be, before the backend is asked, which may take minutes: from now on a
        job that only they could run is not refused.
        """
        self._tell(self._report(self._ledger.entries))

    def turn(self) -> Decision:
        self._trouble = ""
        seen = self._observe()
        shown = self._ledger.entries if seen is None else self._folded(seen, self._present, ()).entries
        demand = self._tell(self._report(shown))
        if demand is not None:
            self._present = demand.present
            if seen is not None:
                self._learn(self._folded(seen, demand.present, demand.known))
        entries = None if seen is None else self._ledger.entries
        has_launched = any(entry.is_live for entry in self._ledger.entries)
        decision = decide(
            self._options,
            PoolFacts(self._now(), entries, demand, self._ledger.totals, self._surplus_since, has_launched),
        )
        self._surplus_since, self.is_over = decision.surplus_since, decision.ends
        self._is_stopping = decision.is_stopping
        self._act(decision)
        self._end_after_failures()
        return decision

    def _end_after_failures(self) -> None:
        most, failed = self._options.failed_starts_max, self._ledger.totals.failed - self._failed_before
        if most is not None and failed > most:
            log.error("%d starts have failed, more than --max-failed-starts %d; the pool ends", failed, most)
            self.is_over = True

    # -- look ------------------------------------------------------------------------------------------------------

    def _observe(self) -> tuple[BackendWorker, ...] | None:
        """None: it cannot be asked."""
        try:
            return self._backend.observe()
        except SwellError as error:
            self._trouble = str(error)
            log.warning("%s", error)
            return None

    def _folded(self, seen: tuple[BackendWorker, ...], nodes: tuple[str, ...], known: tuple[str, ...]) -> Folded:
        return fold(self._ledger.entries, seen, nodes, known, now=self._now())

    def _learn(self, folded: Folded) -> None:
        """Only once the server has said which workers were its nodes: one may come and go between two looks."""
        totals = self._ledger.totals
        for entry in folded.failed:
            totals = self._failed(totals, _never_registered(entry))
        if folded.registered:
            totals = replace(totals, failures=0, problem="")
        if (folded.entries, totals) != (self._ledger.entries, self._ledger.totals):
            self._write(LaunchLedger(folded.entries, totals))

    def _failed(self, totals: LaunchTotals, problem: str) -> LaunchTotals:
        log.warning("%s", problem)
        return replace(
            totals,
            failed=totals.failed + 1,
            failures=totals.failures + 1,
            failed_at=self._now(),
            problem=problem,
        )

    # -- ask -------------------------------------------------------------------------------------------------------

    def _report(self, entries: tuple[LaunchedWorker, ...]) -> PoolReport:
        options, totals = self._options, self._ledger.totals
        return PoolReport(
            options.name,
            options.kind,
            self._key,
            options.offer,
            options.workers_min,
            options.workers_max,
            self._phase,
            _line(self._trouble or totals.problem),
            retry_s(totals, self._now()),
            totals.launched,
            totals.failed,
            tuple(entry.reported() for entry in entries),
        )

    @property
    def _phase(self) -> PoolPhase:
        if self._is_stopping or self._trouble:
            return PoolPhase.STOPPING if self._is_stopping else PoolPhase.BLIND
        return PoolPhase.FAILING if self._ledger.totals.failures else PoolPhase.RUNNING

    def _tell(self, report: PoolReport) -> PoolDemand | None:
        """None: the server does not answer. Raises what it refuses: a token that was revoked, a name that is taken."""
        try:
            demand = self._server.sync(report)
        except Rejected:
            raise
        except SwellError as error:
            log.warning("%s", error)
            self._silence = str(error)
            return None
        self._silence = ""
        return demand

    # -- act -------------------------------------------------------------------------------------------------------

    def _act(self, decision: Decision) -> None:
        by_id = {entry.id: entry for entry in self._ledger.entries}
        for worker in decision.kill:
            self._end(by_id[worker], is_forced=True)
        for worker in decision.cancel:
            self._end(by_id[worker], is_forced=False)
        wanted = [True] * decision.standing + [False] * decision.launch
        if wanted and not self._launch_all(wanted):
            log.info("no further worker is launched in this turn")

    def _end(self, entry: LaunchedWorker, *, is_forced: bool) -> None:
        if not entry.backend_id:
            return
        is_late = is_forced and not entry.has_registered and entry.running_since is not None
        try:
            self._backend.cancel(entry.backend_id, is_forced=is_forced)
        except SwellError as error:
            self._trouble = str(error)
            log.warning("%s", error)
            return
        log.info("%s worker %s (%s)", "killed" if is_forced else "told to leave:", entry.id, entry.backend_id)
        if not is_late:
            self._replace(entry.id, was_cancelled=True)

    def _launch_all(self, wanted: list[bool]) -> bool:
        """False: one of them could not be launched, and those after it were not tried."""
        try:
            token = self._token()
        except SwellError as error:
            self._write(replace(self._ledger, totals=self._failed(self._ledger.totals, f"no token: {error}")))
            return False
        totals = replace(self._ledger.totals, launched_at=self._now())
        self._write(replace(self._ledger, totals=totals))
        orders = [self._options.order(token, is_standing=is_standing) for is_standing in wanted]
        entries = [
            LaunchedWorker(order.id, self._now(), is_standing=is_standing)
            for order, is_standing in zip(orders, wanted, strict=True)
        ]
        # Only what the server hears of before it registers is this pool's there; see `controller/pools.py`.
        self._tell(self._report((*self._ledger.entries, *entries)))
        return all(starmap(self._launch, zip(orders, entries, strict=True)))

    def _launch(self, order: WorkerOrder, entry: LaunchedWorker) -> bool:
        totals = replace(self._ledger.totals, launched=self._ledger.totals.launched + 1)
        self._write(LaunchLedger((*self._ledger.entries, entry), totals))
        try:
            backend_id = self._backend.launch(order)
        except SwellError as error:
            kept = self._ledger.entries if not isinstance(error, Rejected) else self._ledger.entries[:-1]
            self._write(LaunchLedger(kept, self._failed(self._ledger.totals, str(error))))
            return False
        log.info("launched worker %s: %s %s", order.id, self._options.kind, backend_id)
        self._replace(order.id, backend_id=backend_id)
        return True

    def _token(self) -> str:
        return self._folder.worker_token(
            lambda: self._server.worker_token(self._options.worker.group or ""), self._now()
        )

    def _replace(self, worker: str, *, backend_id: str | None = None, was_cancelled: bool = False) -> None:
        entries = tuple(
            replace(
                entry,
                backend_id=entry.backend_id if backend_id is None else backend_id,
                was_cancelled=entry.was_cancelled or was_cancelled,
            )
            if entry.id == worker
            else entry
            for entry in self._ledger.entries
        )
        self._write(replace(self._ledger, entries=entries))

    def _write(self, ledger: LaunchLedger) -> None:
        """First on disk: where that fails nothing is launched."""
        write_private(self._folder.ledger, ledger_text(ledger))
        self._ledger = ledger


def _never_registered(entry: LaunchedWorker) -> str:
    what = f"worker {entry.id} ended before it registered"
    said = ", ".join(filter(None, (entry.word, entry.detail)))
    where = f"; its log: {entry.log}" if entry.log else ""
    return f"{what} ({said}){where}" if said else f"{what}{where}"


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:1000]
