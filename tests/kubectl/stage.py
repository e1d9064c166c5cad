"""A store, an API server on loopback and the channels between them; time is moved by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engines.kubernetes.apiserver import ApiServer
from engines.kubernetes.conftest import access_to
from engines.kubernetes.wire import Request
from store.jobs import Clock, new_job
from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.kubectl import StatusRecorder, StatusView
from swell.model.job import JobId, JobState
from swell.model.reason import Code, Reason
from swell.store import Changes, EventRecord, JobRecord, Store, open_store

Document = dict[str, Any]
PATIENCE_S = 20.0
CREATED = "2026-01-01T00:00:00Z"


class Stage:
    """It plays the adopter (`Arrivals`), too: what came by kubectl is said by the test."""

    def __init__(self, server: ApiServer, port: ApiClient, store: Store, clock: Clock) -> None:
        self.server = server
        self.port = port
        self.store = store
        self.clock = clock
        self.cluster = Cluster(port, lambda *_: None)
        self.others: set[str] = set()  #: namespaces that another server takes in
        self.jobs: dict[str, JobId] = {}  #: uid of a pod → its job
        self.refused: dict[str, str] = {}
        self.partial: dict[str, str] = {}
        self.references: dict[JobId, Document] = {}
        self.reasons: dict[JobId, Reason] = {}
        self.teller = self.make_teller()

    def make_teller(self) -> StatusRecorder:
        """A server of ours that starts now."""
        self.view = StatusView(
            self.port,
            self.cluster,
            self.store,
            self,
            self.reason,
            namespace="default",
            now=self.clock,
            monotonic=self.clock,
        )
        return StatusRecorder(self.view)

    # -- who came by kubectl (Arrivals) ----------------------------------------------------------------------------

    def job_of(self, pod: PodSeen) -> JobId | None:
        return self.jobs.get(pod.uid)

    def why_not(self, pod: PodSeen) -> str | None:
        return self.refused.get(pod.uid) or self.partial.get(pod.uid)

    def is_refused(self, pod: PodSeen) -> bool:
        return pod.uid in self.refused

    def takes(self, namespace: str) -> bool:
        return namespace not in self.others

    def reference(self, job: JobId) -> Document | None:
        return self.references.get(job)

    def reason(self, job: JobRecord) -> Reason | None:
        return self.reasons.get(job.id)

    # -- what a test does ------------------------------------------------------------------------------------------

    def job(self, *, waits: str | None = None) -> JobId:
        [record] = self.store.accept([new_job()]).result()
        if waits is not None:
            self.reasons[record.id] = Reason(Code.WAITING_FOR_ROOM, waits, {}, "nothing to do")
            self.put(record.id, JobState.QUEUED, Code.WAITING_FOR_ROOM)
        return record.id

    def put(self, job: JobId, state: JobState, code: Code | None = None, *, width: int = 0, attempts: int = 0) -> None:
        values = {"state": str(state), "reason_code": code and str(code), "width": width, "attempts": attempts}
        self.store.record(Changes(jobs={job: values})).result()

    def happen(self, job: JobId, kind: str, **detail: Any) -> None:
        self.store.record(Changes(events=[EventRecord(kind, job, detail=detail)])).result()

    def pod(self, name: str, job: JobId | None = None, *, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """One that waits for us, as a user has created it; its uid."""
        container = {"name": "main", "image": "i", "resources": {}}
        document = {
            "metadata": {"creationTimestamp": CREATED, "labels": labels or {}},
            "spec": {"schedulerName": "swell", "containers": [container], **spec},
            "status": {"phase": "Pending"},
        }
        uid = self.create("pods", name, document)
        self.until(lambda: bool(self.cluster.pods([uid])))
        if job is not None:
            self.jobs[uid] = job
        return uid

    def object(self, name: str, job: JobId, *, namespace: str = "default") -> str:
        """A Job that we have made for a job of ours; its uid."""
        labels = {"swell.dev/job": str(job), "swell.dev/store": self.store.id}
        container = {"name": "main", "image": "i"}
        spec = {"completions": 1, "parallelism": 1, "template": {"spec": {"containers": [container]}}}
        document = {"metadata": {"creationTimestamp": CREATED, "labels": labels}, "spec": spec}
        uid = self.create("jobs", name, document, namespace=namespace)
        self.until(lambda: (found := self.cluster.object("Job", namespace, name)) is not None and found.uid == uid)
        return uid

    def create(self, plural: str, name: str, document: Document, *, namespace: str = "default") -> str:
        kind = {"pods": ("v1", "Pod"), "jobs": ("batch/v1", "Job")}[plural]
        named = {"apiVersion": kind[0], "kind": kind[1], **document}
        return str(self.server.storage.create(plural, (namespace, name), named)["metadata"]["uid"])

    def delete(self, plural: str, name: str) -> None:
        uid = self.server.storage.get(plural, ("default", name))["metadata"]["uid"]
        self.server.storage.delete(plural, ("default", name), {})
        self.until(lambda: not self.cluster.pods([uid]) and self.cluster.object("Job", "default", name) is None)

    def pass_time(self, seconds: float) -> None:
        """A look, then time, then everything that is due is said."""
        self.teller.look()
        self.clock.time += seconds
        self.teller.look()
        self.drain()

    def drain(self) -> None:
        while self.teller.tell():
            pass

    def until(self, is_true: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_true():
            assert time.monotonic() < end, "it did not become true"
            threading.Event().wait(0.005)

    def follow_up(self) -> None:
        """Until the watch has shown what was written to pods that wait."""
        written = [document for document in self.server.storage.state("pods").values() if not _node(document)]
        self.until(lambda: all(document in self._shown() for document in written))

    def _shown(self) -> list[Document]:
        return [pod.document for pod in self.cluster.waiting_pods() if pod.document is not None]

    # -- what was said ---------------------------------------------------------------------------------------------

    def writes(self) -> list[Request]:
        return [request for request in self.server.seen if request.method != "GET"]

    def condition(self, name: str) -> str:
        """Its message; empty: it has none."""
        pod = self.server.storage.get("pods", ("default", name))
        said = pod["status"].get("conditions") or [{}]
        return str(said[0].get("message", ""))

    def events(self, name: str) -> list[tuple[str, str, int]]:
        """Reason, message and count of those about an object, in the order in which kubectl shows them."""
        found = [one for _, one in sorted(self.server.storage.state("events").items())]
        return [(one["reason"], one["message"], one["count"]) for one in found if one["involvedObject"]["name"] == name]

    def annotations(self, plural: str, name: str) -> dict[str, str]:
        return dict(self.server.storage.get(plural, ("default", name))["metadata"].get("annotations") or {})


def _node(document: Document) -> str:
    return str(document["spec"].get("nodeName", ""))


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    server = ApiServer(folder / "token")
    port = ApiClient(access_to(server), answer_s=5.0)
    clock = Clock()
    store = open_store(folder / "swell.db", clock)
    stage = Stage(server, port, store, clock)
    try:
        assert stage.cluster.start(PATIENCE_S) is None
        yield stage
    finally:
        stage.cluster.stop()
        port.close()
        store.close()
        server.close()
