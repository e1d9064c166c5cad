"""Which engine runs the tasks, and what starts and ends with it?

On machines of our own: the worker of this machine, kept alive. On Kubernetes: `kubernetes_backend.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from swell.api.members import Members
from swell.api.services import ClusterCalls, ServedEngine
from swell.config import ClusterSettings, Config, UserLimits
from swell.engines.workers import WorkersEngine
from swell.machine.state_folder import StateFolder
from swell.model.quota import DiskUse
from swell.planner.why.wording import ON_MACHINES, Wording
from swell.server.supervisor import WorkerSupervisor
from swell.store import Store

if TYPE_CHECKING:
    from swell.server.kubernetes_backend import Manager  # a server of workers imports nothing of Kubernetes


class Backend(Protocol):
    @property
    def engine(self) -> ServedEngine: ...

    @property
    def workers(self) -> WorkersEngine | None:
        """The same engine, where workers run the tasks; None: Kubernetes runs them."""

    @property
    def cluster(self) -> ClusterCalls | None:
        """None: workers of ours run the tasks."""

    @property
    def wording(self) -> Wording:
        """In which words reasons speak of where tasks run."""

    @property
    def checkpoints(self) -> str:
        """Where jobs that name no folder for them find one for each job."""

    def adopt(
        self, manager: Manager, limits: Callable[[str], UserLimits], disk_use: Callable[[str], DiskUse | None]
    ) -> None:
        """Who is told of jobs that came another way, and says why one waits; and what limits such jobs, by owner."""

    def open(self, load: Callable[[], int]) -> None:
        """`load` reads the world and tells the engine; its result is the generation to begin with."""

    def close(self) -> None: ...

    def members(self, config: Config, owner: str) -> Members | None:
        """Who may ask beside the server's owner; None: nobody whom the engine knows of."""

    @property
    def is_ready(self) -> bool: ...


class WorkersBackend:
    """One worker on this machine, and whoever joins from others."""

    cluster = None
    wording = ON_MACHINES

    def __init__(self, state: StateFolder, wake: Callable[[], None], address: str) -> None:
        self.engine = self.workers = WorkersEngine(state.tasks, wake=wake)
        self._supervisor = WorkerSupervisor(state, address)
        self.checkpoints = str(state.checkpoints)

    def adopt(
        self, manager: Manager, limits: Callable[[str], UserLimits], disk_use: Callable[[str], DiskUse | None]
    ) -> None:
        """On a machine of ours nobody leaves jobs lying about."""

    def open(self, load: Callable[[], int]) -> None:
        self.engine.open(load())
        self._supervisor.start()

    def close(self) -> None:
        self._supervisor.close()

    def members(self, config: Config, owner: str) -> None:
        """A machine's users come through its socket."""

    @property
    def is_ready(self) -> bool:
        return True


def make_backend(
    state: StateFolder, cluster: ClusterSettings | None, store: Store, wake: Callable[[], None], *, address: str
) -> Backend:
    """`address`: of this machine, as others reach it."""
    if cluster is None:
        return WorkersBackend(state, wake, address)
    from swell.server.kubernetes_backend import KubernetesBackend

    return KubernetesBackend(state, cluster, store, wake)
