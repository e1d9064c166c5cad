"""A backend in memory, whose workers do what a test says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from swell.errors import NotFound, Rejected, Unavailable
from swell.pools.backend import BackendWorker, WorkerOrder, WorkerState


@dataclass
class ScriptedWorld:
    workers: dict[str, tuple[str, BackendWorker]] = field(default_factory=dict)  #: by backend id, with the pool
    texts: dict[str, bytes] = field(default_factory=dict)
    launched: list[str] = field(default_factory=list)  #: ids in order
    is_cut: bool = False
    refusal: str = ""
    loses_answers: bool = False  #: what it launches runs, and its answer is lost
    shows: bool = True  #: False: what is launched is not in its listing yet, as with squeue after sbatch

    def backend(self, pool: str) -> Scripted:
        return Scripted(self, pool)

    def start(self, backend_id: str) -> None:
        if self.workers[backend_id][1].is_live:
            self._change(backend_id, WorkerState.RUNNING)

    def end(self, backend_id: str, exit_code: int) -> None:
        self._change(backend_id, WorkerState.ENDED, exit_code)

    def write_log(self, backend_id: str, text: bytes) -> None:
        self.texts[backend_id] = self.texts.get(backend_id, b"") + text

    def cut(self) -> None:
        self.is_cut = True

    def refuse(self) -> None:
        self.refusal = "unknown queue"

    def _change(self, backend_id: str, state: WorkerState, exit_code: int | None = None) -> None:
        pool, worker = self.workers[backend_id]
        self.workers[backend_id] = pool, replace(worker, state=state, word=state.upper(), exit_code=exit_code)


@dataclass
class Scripted:
    world: ScriptedWorld
    pool: str

    def observe(self) -> tuple[BackendWorker, ...]:
        self._ask()
        if not self.world.shows:
            return ()
        found = (worker for pool, worker in self.world.workers.values() if pool == self.pool)
        return tuple(sorted(found, key=lambda worker: worker.id))

    def launch(self, order: WorkerOrder) -> str:
        self._ask()
        if self.world.refusal:
            raise Rejected(f"launching worker {order.id}: {self.world.refusal}")
        backend_id = f"b{len(self.world.launched) + 1}"
        worker = BackendWorker(order.id, backend_id, WorkerState.PENDING, "PENDING", log=f"log of {backend_id}")
        self.world.workers[backend_id] = order.pool, worker
        self.world.launched.append(order.id)
        if self.world.loses_answers:
            raise Unavailable(f"launching worker {order.id}: no answer")
        return backend_id

    def cancel(self, backend_id: str, *, is_forced: bool = False) -> None:
        self._ask()
        if backend_id in self.world.workers:
            self.world.end(backend_id, 143)

    def logs(self, backend_id: str) -> Iterator[bytes]:
        if backend_id not in self.world.workers:
            raise NotFound(f"there is no {backend_id}")
        yield self.world.texts.get(backend_id, b"")

    def render(self, order: WorkerOrder) -> str:
        return f"worker {order.id}"

    def _ask(self) -> None:
        if self.world.is_cut:
            raise Unavailable("the backend does not answer")
