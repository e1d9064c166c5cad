"""Where is a round played? A cluster, a Swell that reaches it through a proxy, and a recorder beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cluster.api import Refused
from cluster.cluster import Cluster
from cluster.kwok import LAST_WORDS, SUCCEED, render_nodes
from swell.client import Client
from swell.client.connection import path
from swell.client.embedded import ensure_server, stop_server
from swell.client.job import ENDED, Job
from swell.errors import Conflict, SwellError
from swell.machine.state_folder import StateFolder

from .history import PodSighting, Recorder
from .judge import Outage, case_of, end_of
from .proxy import Proxy
from .workload import PATHS, Case

NODES = 3
GPU_LABELS = {"nvidia.com/gpu.memory": "16384"}  # MiB of each GPU
ENDS_S = 240.0  # within this everything has ended, once nothing disturbs any more
CLEARED_S = 90.0
LOOK_S = 0.2
LEFTOVERS = (
    *PATHS.values(),
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/secrets",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
)
OWN_LEASE = "swell"  # of the one server, as long as it is there


class Arena:
    def __init__(self, seed: int, folder: Path, cluster: Cluster) -> None:
        self.seed = seed
        self.cluster = cluster
        self.proxy = Proxy(cluster.api)
        self.recorder = Recorder(cluster.api)
        self.outages: list[Outage] = []
        self.taken: set[str] = set()  # cases whose object was deleted, uids of pods that were
        self.problems: list[str] = []
        self.jobs: list[Job] = []  # as they were at the end
        self.is_calm, self.is_closed = threading.Event(), threading.Event()
        self.nodes = render_nodes(NODES, labels=GPU_LABELS)
        for node in self.nodes:
            cluster.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": node["metadata"]})
        self.state = StateFolder(folder / "state")
        self.state.prepare()
        kubeconfig = self.proxy.write_kubeconfig(folder / "kubeconfig")
        self.state.write_json(self.state.config, {"cluster": {"kubeconfig": str(kubeconfig), "namespace": "default"}})
        self.revive()

    def close(self) -> None:
        self.is_closed.set()
        self.proxy.stop_meddling()
        with contextlib.suppress(SwellError):
            stop_server(self.state)
        self.recorder.close()
        self.proxy.close()

    # -- work ------------------------------------------------------------------------------------------------------

    def bring(self, case: Case) -> None:
        """Repeated until it is accepted, as a careful client does; anything may be down."""
        if case.way == "kubectl":
            for document in case.documents:
                self._patiently(lambda document=document: self._create(document), case)
        else:
            self._patiently(lambda: self._submit(case), case)

    def _create(self, document: dict[str, Any]) -> None:
        try:
            self.cluster.api.create(PATHS[document["kind"]], document)
        except Refused as refusal:
            if refusal.status != 409:  # it is there: an answer was lost
                raise OSError(str(refusal)) from refusal

    def _submit(self, case: Case) -> None:
        [document] = case.documents
        body = {"manifest": document, "workdir": "/", "env": {}}
        Client(self.state).connection.json("POST", path("jobs"), body, headers={"Idempotency-Key": case.name})

    def _patiently(self, ask: Callable[[], object], what: object) -> None:
        until = time.monotonic() + ENDS_S
        problem: Exception | None = None
        while time.monotonic() < until:
            try:
                ask()
                return
            except (SwellError, OSError) as error:
                problem = error
                time.sleep(LOOK_S)
        raise AssertionError(f"seed {self.seed}: {what} was never accepted: {problem}")

    # -- what people do with it ------------------------------------------------------------------------------------

    def job(self, name: str) -> dict[str, Any] | None:
        """None: nobody knows it yet, or nobody can be asked."""
        try:
            return Client(self.state).job(name).document
        except (SwellError, OSError):
            return None

    def has_ended(self, name: str) -> bool:
        job = self.job(name)
        return job is not None and job["state"] in ENDED

    def until(self, name: str, is_so: Callable[[dict[str, Any]], bool], patience_s: float = ENDS_S) -> bool:
        """False: it has ended without, or it takes too long."""
        until = time.monotonic() + patience_s
        while (job := self.job(name)) is None or not is_so(job):
            if time.monotonic() > until or (job is not None and job["state"] in ENDED):
                return False
            time.sleep(LOOK_S)
        return True

    def ask(self, name: str, change: Callable[[Client], object], is_over: Callable[[], bool] = lambda: False) -> None:
        """Repeated until it is done, or over; what was done already, or of one that has ended, is a conflict."""

        def once() -> None:
            with contextlib.suppress(Conflict):
                if not is_over():
                    change(Client(self.state))

        self._patiently(once, f"what is asked of {name}")

    def let_end(self, case: Case) -> None:
        """Of an endless one: as soon as all of its pods run they are told to end, until it has ended."""
        until = time.monotonic() + ENDS_S
        while not self.has_ended(case.name) and time.monotonic() < until:
            there = [one for one in self.pods_of(case) if one.phase == "Running" and not one.is_deleting]
            if len(there) == case.tasks:
                self.mark_to_end(there)
            time.sleep(LOOK_S)

    def pods_of(self, case: Case) -> list[PodSighting]:
        return [one for one in self.recorder.history.latest().values() if case_of(one.name, (case,))]

    def mark_to_end(self, pods: Sequence[PodSighting], last_words: str = "") -> None:
        for one in pods:
            note = {"metadata": {"uid": one.uid, "annotations": {SUCCEED: "0s", LAST_WORDS: last_words}}}
            with contextlib.suppress(OSError, Refused):  # it is gone, or the next look does it
                self.cluster.api.patch(f"{PATHS['Pod']}/{one.name}", note)

    # -- faults ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def outage(self, what: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self.outages.append(Outage(begin, time.monotonic(), what))

    def hinder(self, what: str, seconds: float) -> None:
        """Something that ends by itself."""
        now = time.monotonic()
        self.outages.append(Outage(now, now + seconds, what))

    def kill(self) -> None:
        pid = self.state.lock_holder("server")
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def revive(self) -> None:
        self._patiently(lambda: ensure_server(self.state), "a server that starts again")

    # -- the end ---------------------------------------------------------------------------------------------------

    def await_ends(self, cases: Sequence[Case]) -> dict[str, list[str]]:
        """By name how its jobs have ended, when all have or after a long while."""
        client = Client(self.state)
        until = time.monotonic() + ENDS_S
        while True:
            self.jobs = jobs = client.jobs(all=True, all_users=True)
            known = {job.name for job in jobs}
            expected = {case.name for case in cases if not self._was_taken_early(case)}
            if (expected <= known and all(job.has_ended for job in jobs)) or time.monotonic() > until:
                ends: dict[str, list[str]] = {}
                for job in jobs:
                    ends.setdefault(job.name, []).append(self._end(job, case_of(job.name, cases)))
                return ends
            time.sleep(LOOK_S)

    def _end(self, job: Job, case: Case | None) -> str:
        if not job.has_ended:
            return f"{job.state} ({(job.document['reason'] or {}).get('message', '')})"
        if case is None or job.state != "succeeded":
            return job.state
        width = Client(self.state).show(job.id)["attempts"][-1]["width"]
        return end_of(case, job.state, width, job.document["progress"]["epochs_done"])

    def _was_taken_early(self, case: Case) -> bool:
        """Were all of its pods taken away before Swell could know of them?"""
        if not case.is_bare_by_kubectl:
            return False
        there = self.recorder.history.latest().values()
        return not any(case_of(one.name, (case,)) for one in there)

    def clear(self, cases: Sequence[Case]) -> list[str]:
        """Every job is deleted by whoever brought it; what is left of it."""
        client = Client(self.state)
        for job in client.jobs(all=True, all_users=True):
            client.delete(job.id)
        for case in cases:
            for document in case.documents if case.way == "kubectl" else ():
                path = f"{PATHS[document['kind']]}/{document['metadata']['name']}"
                with contextlib.suppress(Refused):
                    self.cluster.api.delete(f"{path}?propagationPolicy=Background")  # as kubectl does
        until = time.monotonic() + CLEARED_S
        while (left := self._left(cases)) and time.monotonic() < until:
            time.sleep(LOOK_S)
        return [f"left behind: {one}" for one in left]

    def _left(self, cases: Sequence[Case]) -> list[str]:
        found = []
        for collection in LEFTOVERS:
            for item in self.cluster.api.get(collection)["items"]:
                name = item["metadata"]["name"]
                is_ours = not {"swell.dev/store", "swell.dev/lease"}.isdisjoint(item["metadata"].get("labels") or {})
                if (is_ours and name != OWN_LEASE) or case_of(name, cases):
                    found.append(f"{collection.rsplit('/', 1)[1]}/{name}")
        return found


class Customer(threading.Thread):
    """Brings one job after the other, whatever else happens."""

    def __init__(self, arena: Arena, cases: Sequence[tuple[float, Case]]) -> None:
        super().__init__(name="customer", daemon=True)
        self._arena = arena
        self._cases = cases

    def run(self) -> None:
        for pause_s, case in self._cases:
            time.sleep(pause_s)
            try:
                self._arena.bring(case)
            except AssertionError as error:
                self._arena.problems.append(str(error))
