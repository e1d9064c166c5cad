"""Azure Batch on loopback: a fake of the REST interface that azure-batch 15 speaks, and of a blob container.

It checks the signature of every request, the version of the interface and the fields of a task that Azure requires;
it runs nothing: a test says what becomes of a task.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pools.unsteady import Trouble, Unsteady
from swell.pools.azure_batch.backend import AzureBatchBackend
from swell.pools.azure_batch.options import AzureBatchOptions

ACCOUNT = "swelllab"
KEY = base64.b64encode(b"a key that nobody else has").decode()
SIGNATURE = "sv=2025&sp=rwl&sig=secret-signature"
JOB = "swell-workers"
VERSION = "2025-06-01"
PAGE = 3  # tasks in one answer; Azure's own is 1000
SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)
TASK = re.compile(rf"/jobs/{JOB}/tasks/(?P<id>[^/]+)(?:/(?P<verb>terminate|files/(?P<file>.+)))?")
BLOB = re.compile(r"/logs/(?P<name>.+)")


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Task:
    document: dict[str, Any]
    state: str = "active"
    execution: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)  #: on its machine

    def shown(self) -> dict[str, Any]:
        return {"id": self.document["id"], "state": self.state, "executionInfo": self.execution}


class AzureServer:
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.blobs: dict[str, bytes] = {}
        self.ends = 0
        outer = self

        class Handler(_Handler):
            azure = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- what a test makes happen ----------------------------------------------------------------------------------

    def end(self, task: Task, exit_code: int | None) -> None:
        """Its output is uploaded, as its task asked."""
        self.ends += 1
        task.state = "completed"
        task.execution["endTime"] = f"2026-11-18T10:00:{self.ends:02}Z"
        if exit_code is not None:
            task.execution["exitCode"] = exit_code
        for upload in task.document.get("outputFiles", ()):
            folder = upload["destination"]["container"]["path"]
            self.blobs.update({f"{folder}/{name}": content for name, content in task.files.items()})

    def lose_machine(self, task: Task) -> None:
        task.files.clear()

    # -- requests --------------------------------------------------------------------------------------------------

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, bytes, str]:
        url = urlsplit(target)
        blob = BLOB.fullmatch(url.path)
        if blob is not None:
            found = self.blobs.get(unquote(blob["name"])) if url.query == SIGNATURE else None
            return (404, b"", "text/xml") if found is None else (200, found, "text/plain")
        try:
            refuse_unsigned(method, target, headers)
            query = dict(parse_qsl(url.query))
            if query.get("api-version") != VERSION:
                raise Refused(400, "InvalidQueryParameterValue", "api-version is not known")
            return self._answer(method, url.path, query, body)
        except Refused as refused:
            said = {"code": refused.code, "message": {"lang": "en-US", "value": f"{refused}\nRequestId:1-2-3"}}
            return refused.status, json.dumps(said).encode(), "application/json"

    def _answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        if path == f"/jobs/{JOB}/tasks":
            return self._add(json.loads(body)) if method == "POST" else self._list(query)
        found = TASK.fullmatch(path)
        if found is None:
            raise Refused(404, "JobNotFound", "The specified job does not exist.")
        task = self.tasks.get(found["id"])
        if task is None:
            raise Refused(404, "TaskNotFound", "The specified task does not exist.")
        if found["verb"] == "terminate":
            if task.state == "completed":
                raise Refused(409, "TaskCompleted", "The specified task is already in completed state.")
            self.end(task, None)
            return 204, b"", ""
        if found["file"] is not None:
            if found["file"] not in task.files:
                raise Refused(404, "FileNotFound", "The specified file does not exist.")
            return 200, task.files[found["file"]], "application/octet-stream"
        assert method == "DELETE"
        del self.tasks[found["id"]]
        return 200, b"", ""

    def _add(self, document: dict[str, Any]) -> tuple[int, bytes, str]:
        if not isinstance(document.get("id"), str) or not document.get("commandLine"):
            raise Refused(400, "InvalidRequestBody", "id and commandLine are required")
        if document["id"] in self.tasks:
            raise Refused(409, "TaskExists", "The specified task already exists.")
        self.tasks[document["id"]] = Task(document)
        return 201, b"", ""

    def _list(self, query: dict[str, str]) -> tuple[int, bytes, str]:
        wanted = re.fullmatch(r"startswith\(id,'([^']*)'\)", query["$filter"])
        assert wanted is not None, query
        names = sorted(name for name in self.tasks if name.startswith(wanted[1]))
        begin = int(query.get("$skiptoken", 0))
        page: dict[str, Any] = {"value": [self.tasks[name].shown() for name in names[begin : begin + PAGE]]}
        if begin + PAGE < len(names):
            following = f"$filter={quote(query['$filter'])}&api-version={VERSION}&$skiptoken={begin + PAGE}"
            page["odata.nextLink"] = f"{self.next_link}/jobs/{JOB}/tasks?{following}"
        return 200, json.dumps(page).encode(), "application/json; odata=minimalmetadata"

    next_link = ""  #: where the next page is: the proxy's address


def refuse_unsigned(method: str, target: str, headers: Any) -> None:
    """As Azure describes the signature of an account's key."""
    url = urlsplit(target)
    ours = sorted((name.lower(), value) for name, value in headers.items() if name.lower().startswith("ocp-"))
    given = {name: headers.get(name, "") for name in SIGNED}
    parts = [method, *given.values(), *(f"{name}:{value}" for name, value in ours), f"/{ACCOUNT}{url.path}"]
    parts += [f"{name}:{value}" for name, value in sorted(parse_qsl(url.query)) if value]
    made = hmac.new(base64.b64decode(KEY), "\n".join(parts).encode(), hashlib.sha256).digest()
    if headers.get("authorization") != f"SharedKey {ACCOUNT}:{base64.b64encode(made).decode()}":
        raise Refused(403, "AuthenticationFailed", "Server failed to authenticate the request.")


class _Handler(BaseHTTPRequestHandler):
    azure: AzureServer
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status, answer, kind = self.azure.answer(self.command, self.path, self.headers, body)
        self.send_response_only(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = _pass  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


class AzureWorld:
    def __init__(self) -> None:
        self.server = AzureServer()
        self.proxy = Unsteady(self.server.url)
        self.server.next_link = self.proxy.url
        self.options = AzureBatchOptions(
            image="swelllab.azurecr.io/swell-torch:1",
            account_name=ACCOUNT,
            account_key=KEY,
            service_url=self.proxy.url,
            log_container_url=f"{self.server.url}/logs?{SIGNATURE}",
            job_id=JOB,
        )

    def backend(self, pool: str, *, answer_s: float = 10.0) -> AzureBatchBackend:
        return AzureBatchBackend(pool, self.options, answer_s=answer_s, pause_s=0.01)

    def task(self, backend_id: str) -> Task:
        return self.server.tasks[backend_id.partition("/")[2]]

    def start(self, backend_id: str) -> None:
        task = self.task(backend_id)
        task.state = "running"
        task.execution["startTime"] = "2026-11-18T09:00:00Z"

    def end(self, backend_id: str, exit_code: int) -> None:
        self.server.end(self.task(backend_id), exit_code)

    def write_log(self, backend_id: str, text: bytes) -> None:
        files = self.task(backend_id).files
        files["stderr.txt"] = files.get("stderr.txt", b"") + text

    def cut(self) -> None:
        self.proxy.always = Trouble.CUT

    def refuse(self) -> None:
        other = base64.b64encode(b"another key").decode()
        self.refused, self.options = self.options, replace(self.options, account_key=other)

    def close(self) -> None:
        self.proxy.close()
        self.server.close()
