"""What do the endpoints need?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from swell.api.bell import Bell
from swell.api.box import Box
from swell.api.caller import Caller
from swell.api.doors.keeper import Doorkeeper
from swell.api.members import Members
from swell.api.threads import Pools
from swell.audit import Audit
from swell.config import Config
from swell.controller import Controller
from swell.controller.diskmeter import DiskMeter
from swell.controller.jobsecrets import JobSecrets
from swell.engines.kubernetes import KubernetesEngine
from swell.engines.workers import WorkersEngine
from swell.manifests import Manifest
from swell.metrics import Metrics
from swell.store import JobRecord, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to `create_app`; the only way from an endpoint to the rest of Swell."""

    store: Store
    controller: Controller
    engine: WorkersEngine | KubernetesEngine
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
    disk: DiskMeter | None = None  #: what logs and checkpoints take; None: nobody counts
    box: Box | None = None  #: the users of this machine; None: it is not for them
    members: Members | None = None  #: the users of a cluster; None: it is not for them
    try_out: Callable[[Sequence[Manifest]], None] = lambda _: None  #: refuses what a cluster would refuse
    delete_object: Callable[[Mapping[str, Any]], None] = lambda _: None  #: of a cluster: what came by kubectl
    priority_classes: Callable[[], Mapping[str, int]] = dict  #: what a cluster calls its priorities; it is asked
    gpu_quota: Callable[[str], tuple[str, str] | None] = lambda _: None  #: of a namespace: limit and use; None: none
    sees_checkpoints: bool = True  #: False: that folder is inside pods
    is_ready: Callable[[], bool] = lambda: True  #: can it be sent requests, or does it still read what there is?
    intake: Callable[[], str | None] = lambda: None  #: who takes in what kubectl applies; None: there is no cluster
    committed: Bell = field(default_factory=Bell)
    desired: Bell = field(default_factory=Bell)
    control: Bell = field(default_factory=Bell)
    pools: Pools = field(default_factory=Pools)
    metrics: Metrics = field(default_factory=Metrics)
    audit: Audit = field(default_factory=Audit)
    doorkeeper: Doorkeeper = field(default_factory=Doorkeeper)
    now: Callable[[], float] = time.time

    @property
    def workers(self) -> WorkersEngine | None:
        """None: tasks are run by Kubernetes."""
        return self.engine if isinstance(self.engine, WorkersEngine) else None

    @property
    def cluster(self) -> KubernetesEngine | None:
        """None: tasks are run by workers of ours."""
        return self.engine if isinstance(self.engine, KubernetesEngine) else None

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
