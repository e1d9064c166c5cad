"""What can we ask of Kubernetes?

Any kind, as plain documents. Synchronous, safe for several threads, up to 64 requests at once; every failure is one of
`failures.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from swell.engines.kubernetes.client.access import Access
from swell.engines.kubernetes.client.connection import NEVER, Abort
from swell.engines.kubernetes.client.connection_pool import CONNECTIONS_MAX
from swell.engines.kubernetes.client.credentials import Headers
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import ApiRequest, Expired
from swell.engines.kubernetes.client.requests import ANSWER_S, Exchange, Guard, Stream, anybody
from swell.engines.kubernetes.client.resources import (
    PODS,
    SUBJECT_REVIEWS,
    TOKEN_REVIEWS,
    Resource,
    group_path,
    not_served,
    parse_resources,
)
from swell.errors import NotFound, SwellError

T = TypeVar("T")

PAGE = 500  # what client-go asks for at once: some megabytes of pods
LISTS_MAX = 3  # a list that expires between its pages three times is too large for the API server's memory
REVIEWS = (TOKEN_REVIEWS.group, SUBJECT_REVIEWS.group)  # these are created to ask something, and nothing stays
LOG_SILENCE_S = 600.0  # a program may say nothing for long; whoever follows asks again from where it was


class PatchKind(Enum):
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"  #: not for custom resources
    APPLY = "application/apply-patch+yaml"  #: server-side apply; JSON is YAML


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource."""

    resource: Resource
    namespace: str | None = None  #: None: all of them
    labels: str | None = None  #: a label selector; None: any
    fields: str | None = None  #: a field selector; None: any


@dataclass(frozen=True, slots=True)
class Page:
    items: tuple[Document, ...]
    resource_version: str  #: the same for all pages of one list
    continues: str | None  #: what gets the next page; None: this was the last
    after: int = 0  #: objects after this page, as far as the API server counts them


class ApiClient:
    """One API server. `guard` is asked before every try to change something there, and raises where we must not."""

    def __init__(
        self, access: Access, *, agent: str = "swell", answer_s: float = ANSWER_S, guard: Guard = anybody
    ) -> None:
        self.access = access
        self._guard = guard
        self._exchange = Exchange(access, agent=agent, answer_s=answer_s)
        self._threads = ThreadPoolExecutor(CONNECTIONS_MAX, thread_name_prefix="kubernetes")
        self._served: dict[str, dict[str, Resource]] = {}

    def close(self) -> None:
        """Whoever waits for an answer is told at once that there is none; streams are ended by who reads them."""
        self._exchange.close()
        self._threads.shutdown()

    # -- read ------------------------------------------------------------------------------------------------------

    def resource(self, api_version: str, kind: str) -> Resource:
        """Asked once for each group; what is missing is asked for again each time, because it may get installed."""
        served = self._served.get(api_version, {})
        if kind not in served:
            served = self._served[api_version] = self._discover(api_version, kind)
        if kind not in served:
            raise not_served(api_version, kind)
        return served[kind]

    def version(self) -> str:
        """What the API server calls itself, as in v1.34.2."""
        ask = ApiRequest("GET", "get", Resource("", "", "the version", ""))
        return str(self._exchange.document(ask, "/version").get("gitVersion", ""))

    def _discover(self, api_version: str, kind: str) -> dict[str, Resource]:
        ask = ApiRequest("GET", "get", Resource("", "", f"the resources of {api_version}", ""))
        try:
            return parse_resources(self._exchange.document(ask, group_path(api_version)))
        except NotFound as error:
            raise not_served(api_version, kind) from error

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> Document:
        ask = ApiRequest("GET", "get", resource, namespace, name, subresource)
        return self._exchange.document(ask, resource.path(namespace, name, subresource))

    def list(self, selection: Selection) -> Page:
        """All of it, as it is now, as one page."""
        for tries in itertools.count(1):
            try:
                pages = list(self.pages(selection))
                break
            except Expired:
                if tries == LISTS_MAX:
                    raise
        return Page(tuple(item for page in pages for item in page.items), pages[0].resource_version, None)

    def pages(self, selection: Selection, *, limit: int = PAGE, abort: Abort = NEVER) -> Iterator[Page]:
        """The newest state, page by page, all of one moment; raises `Expired` where that has become too old."""
        ask = ApiRequest("GET", "list", selection.resource, selection.namespace)
        query: Document = {"limit": limit, "labelSelector": selection.labels, "fieldSelector": selection.fields}
        path = selection.resource.path(selection.namespace)
        while True:
            page = _page(self._exchange.document(ask, path, query, abort=abort), selection.resource)
            yield page
            if page.continues is None:
                return
            query["continue"] = page.continues  # which says the version itself

    def watch(
        self, selection: Selection, version: str, *, timeout_s: int, silence_s: float, abort: Abort = NEVER
    ) -> Stream:
        """What happened after that version, one JSON document per line."""
        ask = ApiRequest("GET", "watch", selection.resource, selection.namespace)
        query: Document = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": version,
            "timeoutSeconds": timeout_s,
            "labelSelector": selection.labels,
            "fieldSelector": selection.fields,
        }
        path = selection.resource.path(selection.namespace)
        return self._exchange.stream(ask, path, query, silence_s=silence_s, abort=abort)

    def log(
        self,
        pod: str,
        namespace: str,
        container: str | None = None,
        *,
        follow: bool = False,
        since: str | None = None,
        has_timestamps: bool = False,
        is_previous: bool = False,
        abort: Abort = NEVER,
    ) -> Stream:
        """Its bytes as they come. `since` is a moment as Kubernetes writes it, exact to the second."""
        ask = ApiRequest("GET", "get", PODS, namespace, pod, "log")
        query: Document = {
            "container": container,
            "follow": follow or None,
            "sinceTime": since,
            "timestamps": has_timestamps or None,
            "previous": is_previous or None,
        }
        path = PODS.path(namespace, pod, "log")
        return self._exchange.stream(ask, path, query, silence_s=LOG_SILENCE_S, abort=abort)

    # -- write -----------------------------------------------------------------------------------------------------

    def create(
        self,
        resource: Resource,
        body: Document,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        *,
        dry_run: bool = False,
        headers: Headers = (),
    ) -> Document:
        """A name only together with a subresource: an object carries its own. Dry: it is checked, and not made.

        `headers`: in whose name (`impersonation.py`).
        """
        query: Document = {"dryRun": "All" if dry_run else None}
        shown = name or body.get("metadata", {}).get("name")
        ask = ApiRequest("POST", "create", resource, namespace, shown, subresource)
        guard = anybody if dry_run or resource.group in REVIEWS else self._guard
        path = resource.path(namespace, name, subresource)
        return self._exchange.document(ask, path, query, body, guard=guard, headers=headers)

    def replace(self, resource: Resource, body: Document, namespace: str | None = None) -> Document:
        """Raises `Conflict` where the body's resourceVersion is not the newest."""
        name = body["metadata"]["name"]
        ask = ApiRequest("PUT", "update", resource, namespace, name)
        return self._exchange.document(ask, resource.path(namespace, name), body=body, guard=self._guard)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        subresource: str | None = None,
        *,
        kind: PatchKind = PatchKind.MERGE,
        manager: str | None = None,
        force: bool = False,
    ) -> Document:
        """`manager` and `force` are of server-side apply: who owns the fields, and whether others lose theirs."""
        ask = ApiRequest("PATCH", "patch", resource, namespace, name, subresource)
        query: Document = {"fieldManager": manager, "force": force or None}
        path = resource.path(namespace, name, subresource)
        return self._exchange.document(ask, path, query, body, content_type=kind.value, guard=self._guard)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str | None = None,
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> Document:
        """Propagation: Foreground, Background or Orphan. With a uid `Conflict` where it is another by now."""
        options = {
            "propagationPolicy": propagation,
            "gracePeriodSeconds": grace_s,
            "preconditions": None if uid is None else {"uid": uid},
        }
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **_given(options)}
        ask = ApiRequest("DELETE", "delete", resource, namespace, name)
        return self._exchange.document(ask, resource.path(namespace, name), body=body, guard=self._guard)

    def bind(self, pod: str, namespace: str, uid: str, node: str, notes: Mapping[str, str] | None = None) -> None:
        """`Conflict` where it is bound already, or another of that name by now.

        `notes`: annotations that the pod gets in the same moment.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod,
                "namespace": namespace,
                "uid": uid,
                **({"annotations": dict(notes)} if notes else {}),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self.create(PODS, body, namespace, pod, "binding")

    def evict(self, pod: str, namespace: str, uid: str, *, grace_s: int) -> None:
        """Delete it if no PodDisruptionBudget is against that; `Busy` where one is."""
        options = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": uid}}
        metadata = {"name": pod, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        self.create(PODS, body, namespace, pod, "eviction")

    # -- who is who ------------------------------------------------------------------------------------------------

    def review_token(self, token: str, audiences: Sequence[str] = ()) -> Document:
        """The review's status: `authenticated`, and `user` with name and groups where it is."""
        spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}
        status: Document = self.create(TOKEN_REVIEWS, body)["status"]
        return status

    # -- many at once ----------------------------------------------------------------------------------------------

    def gather(self, calls: Sequence[Callable[[], T]]) -> tuple[T | SwellError, ...]:
        """What each returned or which of our errors it raised, in order. Must not be called from within a call."""
        results: list[T | SwellError | None] = [None] * len(calls)
        numbers = iter(range(len(calls)))  # shared: `next` of a range's iterator is atomic

        def work() -> None:
            for number in numbers:
                try:
                    results[number] = calls[number]()
                except SwellError as error:
                    results[number] = error

        # One job per thread, not per call: a future costs half as much as the request itself.
        for done in [self._threads.submit(work) for _ in range(min(len(calls), CONNECTIONS_MAX))]:
            done.result()
        return tuple(results)  # type: ignore[arg-type]  # each has its result by now


def _page(document: Document, resource: Resource) -> Page:
    """Items of a list carry neither kind nor version of their own; outside of it they need both."""
    named = {"apiVersion": resource.api_version, "kind": resource.kind}
    metadata = document["metadata"]
    items = tuple({**named, **item} for item in document.get("items") or ())
    after = metadata.get("remainingItemCount") or 0
    return Page(items, metadata["resourceVersion"], metadata.get("continue") or None, after)


def _given(fields: Document) -> Document:
    return {name: value for name, value in fields.items() if value is not None}
