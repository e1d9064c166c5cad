"""How does a test ask the API server, and wait for what it wants to see?"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .binaries import program
from .processes import PATIENCE_S, run

IN_FLIGHT = 16  # more only makes them wait inside the API server
MERGE = "application/merge-patch+json"
Object = dict[str, Any]


class Refused(Exception):
    """The API server said no: its status and its words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Api:
    """One cluster by its kubeconfig: a request at a time, and waiting by list and watch."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        view = ("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
        known = json.loads(self.kubectl(*view))
        cluster, user = known["clusters"][0]["cluster"], known["users"][0]["user"]
        self.server = str(cluster["server"])
        self.token = str(user.get("token", ""))
        self.context = _context(cluster, user)

    def kubectl(self, *words: str | Path, stdin: str | None = None) -> str:
        return run(program("kubectl"), "--kubeconfig", self.kubeconfig, *words, stdin=stdin)

    def apply(self, *documents: Object, namespace: str = "default") -> None:
        """Server-side: some CRDs are larger than the annotation that client-side apply would write."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-n", namespace, "-f", "-", stdin=text)

    def connect(self, timeout_s: float = PATIENCE_S) -> http.client.HTTPSConnection:
        at = urlsplit(self.server)
        return http.client.HTTPSConnection(at.hostname or "", at.port, timeout=timeout_s, context=self.context)

    def headers(self, kind: str = "application/json") -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Content-Type": kind, "Accept": "application/json", **bearer}

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Any:
        connection = self.connect()
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, self.headers(kind))
            return _read(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def create(self, path: str, document: Object) -> Any:
        return self.request("POST", path, document)

    def create_all(self, path: str, documents: Sequence[Object]) -> None:
        """Many at once, each of several threads with a connection of its own."""
        shares = [documents[start::IN_FLIGHT] for start in range(min(IN_FLIGHT, len(documents)))]
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            list(pool.map(lambda share: self._create_each(path, share), shares))

    def _create_each(self, path: str, documents: Sequence[Object]) -> None:
        connection = self.connect()
        try:
            for document in documents:
                connection.request("POST", path, json.dumps(document), self.headers())
                _read(connection.getresponse())
        finally:
            connection.close()

    def patch(self, path: str, change: Object) -> Any:
        """A JSON merge patch; `path/status` changes the status."""
        return self.request("PATCH", path, change, kind=MERGE)

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path)

    def text(self, path: str) -> str:
        """What is not JSON: a pod's log."""
        return self.kubectl("get", "--raw", path)

    def until(
        self, path: str, is_true: Callable[[dict[str, Object]], bool], *, patience_s: float = PATIENCE_S
    ) -> dict[str, Object]:
        """The objects of a collection, by name, as soon as they are so; watched, not polled."""
        end = time.monotonic() + patience_s
        items: dict[str, Object] = {}
        for items in self._pictures(path, end):
            if is_true(items):
                return items
        raise AssertionError(f"after {patience_s:.0f} s {path} is still {json.dumps(items)[:4000]}")

    def _pictures(self, path: str, end: float) -> Iterator[dict[str, Object]]:
        """The collection now, and again after each change, until the time is up."""
        listing = self.get(path)
        items = {item["metadata"]["name"]: item for item in listing["items"]}
        yield items
        left_s = max(1, int(end - time.monotonic()))
        version = listing["metadata"]["resourceVersion"]
        connection = self.connect(timeout_s=left_s + PATIENCE_S)
        try:
            mark = "&" if "?" in path else "?"
            watch = f"{path}{mark}watch=1&resourceVersion={version}&timeoutSeconds={left_s}"
            connection.request("GET", watch, headers=self.headers())
            for line in connection.getresponse():
                _fold(items, json.loads(line))
                yield items
        finally:
            connection.close()


def _fold(items: dict[str, Object], event: Object) -> None:
    item = event["object"]
    if event["type"] == "DELETED":
        items.pop(item["metadata"]["name"], None)
    elif event["type"] == "ERROR":
        raise Refused(item["code"], item["message"])
    else:
        items[item["metadata"]["name"]] = item


def _read(response: http.client.HTTPResponse) -> Any:
    text = response.read()
    if response.status >= 400:
        try:
            message = str(json.loads(text)["message"])
        except (ValueError, KeyError, TypeError):
            message = text.decode(errors="replace")
        raise Refused(response.status, message)
    return json.loads(text) if text else None


def _context(cluster: Object, user: Object) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data", "")
    context = ssl.create_default_context(cadata=base64.b64decode(authority).decode() if authority else None)
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as pair:  # the ssl module reads certificates from files only
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


def condition(item: Object, kind: str) -> str:
    """True, False, Unknown, or nothing if the object has no such condition."""
    found = [entry["status"] for entry in item.get("status", {}).get("conditions", []) if entry["type"] == kind]
    return str(found[0]) if found else ""
