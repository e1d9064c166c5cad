"""An API server on loopback: honest about versions, pages, watches and refusals, and able to fail as told.

It knows what the port needs and no more: no admission, no defaults, no schema.
"""

from __future__ import annotations

import base64
import copy
import itertools
import json
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .faults import ANSWER, LIST, Fault, Faults, Scripted
from .podlogs import PodLogs
from .storage import Document, Happening, Key, Refusal, Storage
from .wire import Cut, Listener, Request, Wire, chunk, rendered

ADDRESS = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$"
)
KINDS = {
    "v1": {"pods": "Pod", "nodes": "Node"},
    "batch/v1": {"jobs": "Job"},
    "coordination.k8s.io/v1": {"leases": "Lease"},
}
CLUSTER_WIDE = {"nodes"}


@dataclass(frozen=True)
class Place:
    """What an address means."""

    api_version: str
    plural: str
    namespace: str | None
    name: str | None
    sub: str | None

    @property
    def key(self) -> Key:
        assert self.name is not None
        return (self.namespace or "", self.name)


class ApiServer:
    def __init__(self, token_file: Path, *, tls: Any = None, faults: Faults | None = None) -> None:
        self.storage = Storage()
        self.kinds = dict(KINDS)
        self.faults: Faults = faults or Scripted()
        self.token_file = token_file
        self.token = ""  # the one that is accepted now
        self._tokens = itertools.count(1)
        self.rotate()
        self.seen: list[Request] = []  # what was asked, in order
        self._asked = threading.Condition()
        self.bookmark_s = 0.05
        self.logs: dict[Key, list[bytes]] = {}
        self.pod_logs: dict[Key, PodLogs] = {}
        self.denied: dict[tuple[str, ...], str] = {}  # verb, plural and perhaps a namespace → message of a 403
        self._listener = Listener(self._answer, tls)
        host, port = self._listener.server_address[:2]
        self.url = f"{'https' if tls else 'http'}://{host!s}:{port}"

    def close(self) -> None:
        self._listener.close()

    def hang_up(self) -> None:
        """Ends every connection, as a load balancer does with those that say nothing for long."""
        self._listener.hang_up()

    @property
    def connections(self) -> int:
        """How many there have been."""
        return self._listener.connections

    def await_asked(self, count: int, *, lists: bool = False, patience_s: float = 20.0) -> None:
        """Until that many requests, or lists, have come."""

        def has_come() -> bool:
            return len(self.lists() if lists else self.seen) >= count

        with self._asked:
            assert self._asked.wait_for(has_come, patience_s), f"only {len(self.seen)} requests came"

    def lists(self) -> list[Request]:
        return [request for request in self.seen if "watch" not in request.query]

    # -- one request -----------------------------------------------------------------------------------------------

    def _answer(self, request: Request, wire: Wire) -> None:
        with self._asked:
            self.seen.append(request)
            self._asked.notify_all()
        is_list = request.method == "GET" and "watch" not in request.query
        fault = self.faults.answer(LIST if is_list else ANSWER)
        try:
            self._fail_early(fault, wire)
            if request.headers.get("authorization") != f"Bearer {self.token}":
                raise Refusal(401, "Unauthorized", "Unauthorized")
            document = self._document(request, wire, is_stale=fault is Fault.STALE)
        except Refusal as refusal:
            headers = {"Retry_After": "0"} if refusal.code == 429 else {}
            return wire.answer(refusal.code, _status(refusal), **headers)
        if document is not None:
            self._send(rendered(201 if request.method == "POST" else 200, document, {}), fault, wire)
        return None

    def _fail_early(self, fault: Fault | None, wire: Wire) -> None:
        if fault is Fault.DROPPED:
            raise Cut
        if fault is Fault.HALF_OPEN:
            wire.hold()
        if fault is Fault.NO_HTTP:
            wire.raw(b"SSH-2.0-OpenSSH_9.2\r\n")
            raise Cut
        if fault is Fault.SERVER_ERROR:
            raise Refusal(500, "InternalError", "etcdserver: request timed out")
        if fault is Fault.TOO_MANY:
            raise Refusal(429, "TooManyRequests", "too many requests, please try again later")
        if fault is Fault.GONE:
            raise Refusal(410, "Expired", "The provided continue parameter is too old")
        if fault is Fault.NO_TOKEN:
            self.rotate()

    def rotate(self) -> None:
        """From now on only the next token counts; as the kubelet does, its file is replaced whole."""
        self.token = f"token-{next(self._tokens)}"
        fresh = self.token_file.with_suffix(".new")
        fresh.write_text(self.token)
        fresh.rename(self.token_file)

    @staticmethod
    def _send(answer: bytes, fault: Fault | None, wire: Wire) -> None:
        if fault is Fault.TORN:
            wire.raw(answer[: len(answer) * 2 // 3])
            raise Cut
        if fault is Fault.SLOW:
            return wire.drip(answer)
        return wire.raw(answer)

    def _document(self, request: Request, wire: Wire, *, is_stale: bool) -> Document | None:
        """None: answered already, as a stream."""
        served = self.kinds.get(re.sub("^/apis?/", "", request.path))
        if served is not None:
            return _discovery(request.path, served)
        place = _place(request.path)
        verb = "list" if request.method == "GET" and place.name is None else request.method
        for asked in ((verb, place.plural), (verb, place.plural, place.namespace or "")):
            if asked in self.denied:
                raise Refusal(403, "Forbidden", self.denied[asked])
        if request.query.get("watch") == "true":
            return self._watch(place, request, wire)
        if place.sub == "log":
            return self._log(place, request, wire)
        if request.method == "GET":
            return self.storage.get(place.plural, place.key) if place.name else self._list(place, request, is_stale)
        return self._write(place, request)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _write(self, place: Place, request: Request) -> Document:
        body = request.document
        if request.method == "POST" and request.query.get("dryRun"):
            return self._try_out(place, body)
        if request.method == "POST":
            return self._post(place, body)
        if request.method == "PUT":
            return self.storage.update(place.plural, place.key, body)
        if request.method == "PATCH":
            return self._patch(place, body, request.headers["content-type"])
        return self.storage.delete(place.plural, place.key, body.get("preconditions", {}))

    def _try_out(self, place: Place, body: Document) -> Document:
        """As if it were created."""
        name = body["metadata"]["name"]
        if (place.namespace or "", name) in self.storage.state(place.plural):
            raise Refusal(409, "AlreadyExists", f'{place.plural} "{name}" already exists')
        return body

    def _post(self, place: Place, body: Document) -> Document:
        if place.plural == "tokenreviews":
            is_ours = body["spec"]["token"] == self.token
            return {**body, "status": {"authenticated": is_ours, **({"user": {"username": "eva"}} if is_ours else {})}}
        if place.sub == "binding":
            return self._bind(place, body)
        if place.namespace == "nowhere":
            raise Refusal(404, "NotFound", 'namespaces "nowhere" not found')
        return self.storage.create(place.plural, (place.namespace or "", body["metadata"]["name"]), body)

    def _bind(self, place: Place, body: Document) -> Document:
        with self.storage.moved:
            pod = copy.deepcopy(self.storage.get("pods", place.key))
            uid = body["metadata"].get("uid")
            if uid not in (None, pod["metadata"]["uid"]):
                raise Refusal(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
            spec = pod.setdefault("spec", {})
            if "nodeName" in spec:
                words = f'pod {place.name} is already assigned to node "{spec["nodeName"]}"'
                raise Refusal(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{place.name}": {words}')
            spec["nodeName"] = body["target"]["name"]
            if notes := body["metadata"].get("annotations"):
                pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **notes}
            self.storage.update("pods", place.key, pod)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}

    def _patch(self, place: Place, body: Any, content_type: str) -> Document:
        with self.storage.moved:
            try:
                held = self.storage.get(place.plural, place.key)
            except Refusal:
                if "apply-patch" not in content_type:
                    raise
                return self.storage.create(place.plural, place.key, body)
            if "json-patch+" in content_type:
                return self.storage.update(place.plural, place.key, _json_patched(held, body))
            return self.storage.update(place.plural, place.key, _merged(held, body))

    # -- reading ---------------------------------------------------------------------------------------------------

    def _list(self, place: Place, request: Request, is_stale: bool) -> Document:
        with self.storage.moved:
            at, start = self.storage.revision, 0
            if is_stale:
                at = max(self.storage.compacted, at - 10)
            if "continue" in request.query:
                at, start = json.loads(base64.b64decode(request.query["continue"]))
                if at < self.storage.compacted:
                    raise Refusal(410, "Expired", "The provided continue parameter is too old")
            state = self.storage.state(place.plural, at)
        found = [state[key] for key in sorted(state) if _matches(place, request, state[key])]
        limit = int(request.query.get("limit") or len(found) or 1)
        items = [_without_kind(item) for item in found[start : start + limit]]
        metadata: dict[str, Any] = {"resourceVersion": str(at)}
        if start + limit < len(found):
            metadata["remainingItemCount"] = len(found) - start - limit
            metadata["continue"] = base64.b64encode(json.dumps([at, start + limit]).encode()).decode()
        return {"kind": "List", "apiVersion": place.api_version, "metadata": metadata, "items": items}

    def _log(self, place: Place, request: Request, wire: Wire) -> None:
        if place.key in self.pod_logs:
            self.storage.get("pods", place.key)
            return self.pod_logs[place.key].serve(request, wire, self._listener.stopping)
        if place.key not in self.logs:
            self.storage.get("pods", place.key)  # there is no log of a pod that there is not
            return wire.raw(b"HTTP/1.1 204 No Content\r\n\r\n")
        wire.begin("text/plain")
        for piece in self.logs[place.key]:
            wire.raw(chunk(piece))
        if "follow" in request.query:
            wire.hold()
        return wire.end()

    def _watch(self, place: Place, request: Request, wire: Wire) -> None:
        version = int(request.query["resourceVersion"])
        if version < self.storage.compacted:
            raise Refusal(410, "Expired", f"too old resource version: {version} ({self.storage.compacted})")
        wire.begin()
        end = time.monotonic() + int(request.query["timeoutSeconds"])
        while time.monotonic() < end and not self._listener.stopping.is_set():
            with self.storage.moved:
                news = list(self.storage.since(place.plural, version))
                reached = self.storage.revision
                if not news:
                    self.storage.moved.wait(self.bookmark_s)
            lines = [line for happening in news if (line := _event(place, request, happening))]
            if not news:  # a version of the future is waited for in silence, as kube-apiserver does
                lines, reached = [_bookmark(place, version)] if version <= reached else [], version
            self._send_lines(lines, wire)
            version = reached
        wire.end()

    def _send_lines(self, lines: list[bytes], wire: Wire) -> None:
        while lines:
            line = lines.pop(0)
            fault = self.faults.line()
            if fault is Fault.SWAPPED and lines:
                wire.raw(chunk(lines.pop(0) + line))  # together: nothing could tell that the first is missing
            else:
                self._send_line(line, fault, wire)

    def _send_line(self, line: bytes, fault: Fault | None, wire: Wire) -> None:
        if fault in (Fault.DROPPED, Fault.ENDED):
            if fault is Fault.ENDED:
                wire.end()
            raise Cut
        if fault is Fault.HALF_OPEN:
            wire.hold()
        if fault is Fault.TORN:
            wire.raw(chunk(line)[: len(line) // 2])
            raise Cut
        if fault is Fault.SLOW:
            return wire.drip(chunk(line))
        wire.raw(chunk(_spoilt(line, fault)))
        return None


def _spoilt(line: bytes, fault: Fault | None) -> bytes:
    if fault is Fault.REPEATED:
        return line + line
    if fault is Fault.GARBAGE:
        return line[: len(line) // 2] + b"\n" + line
    if fault in (Fault.ERROR_EVENT, Fault.ODD_ERROR_EVENT):
        refusal = Refusal(410, "Expired", "too old resource version")
        if fault is Fault.ODD_ERROR_EVENT:
            refusal = Refusal(500, "InternalError", "unable to decode an event from the watch stream")
        return json.dumps({"type": "ERROR", "object": _status(refusal)}).encode() + b"\n"
    return line


def _place(path: str) -> Place:
    found = ADDRESS.match(path)
    if found is None:
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
    group, version, namespace, plural, name, sub = found.groups()
    return Place(f"{group}/{version}" if group else version, plural, namespace, name, sub)


def _status(refusal: Refusal) -> Document:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": str(refusal),
        "reason": refusal.reason,
        "code": refusal.code,
    }


def _discovery(path: str, served: dict[str, str]) -> Document:
    resources = [
        {"name": plural, "kind": kind, "namespaced": plural not in CLUSTER_WIDE, "verbs": ["get"]}
        for plural, kind in served.items()
    ]
    resources += [{"name": f"{r['name']}/status", "kind": r["kind"], "namespaced": True} for r in resources]
    return {"kind": "APIResourceList", "groupVersion": re.sub("^/apis?/", "", path), "resources": resources}


def _matches(place: Place, request: Request, document: Document | None) -> bool:
    if document is None:
        return False
    metadata = document["metadata"]
    if place.namespace is not None and metadata.get("namespace") != place.namespace:
        return False
    if not all(_field(document, *one.split("=")) for one in request.query.get("fieldSelector", "").split(",") if one):
        return False
    name, _, value = request.query.get("labelSelector", "").partition("=")
    return not name or metadata.get("labels", {}).get(name) == value


def _field(document: Any, path: str, value: str) -> bool:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return bool(document == value)


def _event(place: Place, request: Request, happening: Happening) -> bytes | None:
    """An object that stops to match is deleted as far as this watch goes."""
    was, is_now = (_matches(place, request, document) for document in (happening.before, happening.after))
    if not was and not is_now:
        return None
    kind = "MODIFIED" if was and is_now else "ADDED" if is_now else "DELETED"
    document = copy.deepcopy(happening.after if is_now else happening.before)
    assert document is not None
    document["metadata"]["resourceVersion"] = str(happening.revision)
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def _bookmark(place: Place, version: int) -> bytes:
    document = {"kind": "Object", "apiVersion": place.api_version, "metadata": {"resourceVersion": str(version)}}
    return json.dumps({"type": "BOOKMARK", "object": document}).encode() + b"\n"


def _without_kind(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in ("kind", "apiVersion")}


def _merged(held: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    base = dict(held) if isinstance(held, dict) else {}
    for name, value in patch.items():
        if value is None:
            base.pop(name, None)
        else:
            base[name] = _merged(base.get(name), value)
    return base


def _json_patched(held: Document, steps: list[Document]) -> Document:
    made = copy.deepcopy(held)
    for step in steps:
        *parents, last = step["path"].strip("/").split("/")
        target = made
        for name in parents:
            target = target.setdefault(name, {})
        target[last] = step["value"]
    return made
