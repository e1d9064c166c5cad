"""What does a pool ask of a batch system or cluster, and what does it learn?

Two errors leave a backend (errors.py): `Rejected`, what was asked will never work as it is asked (an unknown partition,
a refused key), and `Unavailable`, it cannot be asked now (no answer, throttled, an answer that cannot be read). The
message says what was being done and quotes the backend's own words: `submitting worker lab-1f3a to slurm: sbatch: …`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from swell.machine.worker_options import WorkerOptions

WORD_MAX = 60  # characters of a backend's word for a state
DETAIL_MAX = 500  # characters of what a backend says about a worker


class WorkerState(StrEnum):
    PENDING = "pending"  #: accepted by the backend, and not started
    RUNNING = "running"  #: started; also while it ends, and while it is started again elsewhere
    ENDED = "ended"
    UNKNOWN = "unknown"  #: the backend has a word for it that we do not know: it may still run


@dataclass(frozen=True, slots=True)
class BackendWorker:
    """One worker, as the backend shows it."""

    id: str  #: as it was ordered
    backend_id: str  #: what the backend calls its job, task or pod
    state: WorkerState
    word: str  #: the backend's own word for the state, as it wrote it
    detail: str = ""  #: why it waits, or how it ended, in the backend's words; empty: it says nothing
    exit_code: int | None = None  #: None: it has not ended, or nobody knows
    log: str = ""  #: the backend's own log: a file, an address or a command; empty: there is none yet
    is_proof: bool = False  #: of an ended one: the backend has seen every process of its last run gone
    last_run: int = 0  #: the least number that this run can have (model/pool.py: `run_at`)

    @property
    def is_live(self) -> bool:
        """It may still run, or is going to: it counts against the maximum of its pool."""
        return self.state is not WorkerState.ENDED


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """One worker that a backend is to start."""

    pool: str  #: letters, digits and '-' (worker_command.py: POOL_NAME)
    id: str  #: `<pool>-<8 hexadecimal digits>`: its name in `swell nodes`, and in all that the backend is told
    cpus_milli: int
    memory_mib: int
    gpus: int
    worker: WorkerOptions  #: what `swell worker` is told; its name, folder and token file are filled in by the backend
    executable: str = "swell"  #: the program that is run as `EXECUTABLE worker …`
    folder_prefix: str = "/tmp"  #: where workers make their folders, on a local disk of their machine  # noqa: S108
    token: str = ""  #: of the scope `worker`; never in a command line, never in a message

    def __repr__(self) -> str:
        return f"WorkerOrder({self.id})"  # without the token


class PoolBackend(Protocol):
    """One batch system or cluster, for one pool. Remembers nothing: after a restart `observe` tells it all again."""

    def observe(self) -> tuple[BackendWorker, ...]:
        """All workers of this pool that the backend still knows, sorted by id; also ended ones while it lists them.

        Raises `Unavailable` where it cannot tell: a part of the answer is never returned as the whole.
        """

    def launch(self, order: WorkerOrder) -> str:
        """Start one; its backend id. After `Unavailable` it may have been started: `observe` shows it by its id."""

    def cancel(self, backend_id: str, *, is_forced: bool = False) -> None:
        """Tell it to stop its tasks and leave; forced: kill it now. One that has ended or is unknown is success."""

    def logs(self, backend_id: str) -> Iterator[bytes]:
        """What the backend has of its log, from the beginning. Raises `NotFound` where there is none."""

    def render(self, order: WorkerOrder) -> str:
        """What `launch` would send, as text for a person; without the token."""
