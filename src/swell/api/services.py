"""What do the endpoints need?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from swell.api.audit import Audit
from swell.api.bell import Bell
from swell.api.box import Box, Caller
from swell.api.doors.keeper import Doorkeeper
from swell.api.members import Members
from swell.api.threads import Pools
from swell.config import Config
from swell.controller import Controller
from swell.controller.diskmeter import DiskMeter
from swell.controller.jobsecrets import JobSecrets
from swell.engines import Engine
from swell.engines.workers import WorkersEngine
from swell.files.chunk_store import ChunkStore
from swell.machine.library import library_folder
from swell.manifests import Manifest
from swell.metrics import Heard, Metrics
from swell.model.cluster import PriorityClass
from swell.model.identity import Identity
from swell.model.job import AttemptId
from swell.store import JobRecord, Store

T = TypeVar("T")


class ClusterCalls(Protocol):
    """What a Kubernetes cluster is asked, beside what every engine does."""

    def try_out(
        self, manifests: Sequence[Manifest], *, identity: Identity | None = None, replaces: bool = False
    ) -> None:
        """Raises what its API server would refuse to them; `replaces`: names of what has ended are free."""

    def ended_objects(self, manifests: Sequence[Manifest]) -> list[dict[str, Any]]:
        """Those that have ended and have the name of one of these."""

    def with_volumes(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """With the rules that the volumes of their pods have for nodes."""

    def delete_object(self, reference: Mapping[str, Any]) -> None:
        """Deletes an object that came by kubectl, and whose job is deleted."""

    def priority_classes(self) -> Mapping[str, PriorityClass]:
        """The cluster's names of priorities."""

    def gpu_quota(self, namespace: str) -> tuple[str, str] | None:
        """How many GPUs a namespace may use, and uses; None: nothing limits it."""

    def intake(self) -> str:
        """Who takes in what kubectl applies, in words."""

    def trouble(self) -> str | None:
        """Why Swell cannot act there at this moment; None: it can."""

    def unreadable(self) -> list[str]:
        """Its objects that Swell cannot read and leaves out until they change, each with the cause."""

    def pod_of(self, attempt: AttemptId, index: int) -> tuple[str, str] | None:
        """Namespace and name of a task's pod; None: it has none now."""


class ServedEngine(Engine, Heard, Protocol):
    """An engine that is also measured."""


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to `create_app`; the only way from an endpoint to the rest of Swell."""

    store: Store
    controller: Controller
    engine: ServedEngine
    workers: WorkersEngine | None  #: the same engine, where workers run the tasks; None: Kubernetes runs them
    cluster: ClusterCalls | None  #: None: workers of ours run the tasks
    owner: str  #: who this server belongs to
    token: str
    worker_token: str
    job_secrets: JobSecrets  #: what the tokens of jobs are made with
    checkpoints: Callable[[JobRecord], str]  #: a job's folder for them, as the job sees it
    url: str  #: how jobs and others reach us
    hosts: frozenset[str]  #: what a Host header may say
    server_id: str  #: new for every process; workers repeat themselves to a new one
    stop: Callable[[], None]
    config: Config = field(default_factory=Config)
    library: Callable[[], str | None] = library_folder  #: the folder of the in-job library, for jobs here
    files: ChunkStore | None = None  #: the files of jobs; None: they are where its jobs run already
    disk: DiskMeter | None = None  #: what logs and checkpoints take; None: nobody counts
    box: Box | None = None  #: the users of this machine; None: it is not for them
    members: Members | None = None  #: the users of a cluster; None: it is not for them
    is_ready: Callable[[], bool] = lambda: True  #: can it be sent requests, or does it still read what there is?
    committed: Bell = field(default_factory=Bell)
    desired: Bell = field(default_factory=Bell)
    control: Bell = field(default_factory=Bell)
    pools: Pools = field(default_factory=Pools)
    metrics: Metrics = field(default_factory=Metrics)
    audit: Audit = field(default_factory=Audit)
    doorkeeper: Doorkeeper = field(default_factory=Doorkeeper)
    now: Callable[[], float] = time.time

    async def priority_classes(self, user: str) -> Mapping[str, PriorityClass]:
        """What a cluster calls its priorities; it is asked in this user's share. A machine has numbers only."""
        if self.cluster is None:
            return {}
        return await self.pools.cluster.run(user, self.cluster.priority_classes)

    async def read(self, user: str, work: Callable[[], T]) -> T:
        """Of the store and the plan, however much this user has there: not on the event loop, and in their share."""
        return await self.pools.reads.run(user, work)

    @property
    def is_shared(self) -> bool:
        """False: private to the owner."""
        return self.box is not None or self.members is not None

    @property
    def may_get_nodes(self) -> bool:
        """Does somebody add nodes for jobs that wait? On a cluster pods of ours call its autoscaler."""
        return self.cluster is not None and (self.config.cluster is None or self.config.cluster.stand_ins)

    @property
    def operator(self) -> str:
        """In words: who may act as anybody here."""
        return "root" if self.box is not None else "who has the server's own token"

    def acting_for(self, user: str, origin: str) -> Caller | None:
        """Whoever comes through a door in a user's name; None: this machine has no such user any more."""
        if self.members is not None:
            return self.members.acting_for(user, origin)
        return Caller(user, False, origin) if self.box is None else self.box.acting_for(user, origin)
