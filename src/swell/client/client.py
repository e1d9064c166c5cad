"""What can a program ask of Swell?"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import quote

from swell.client.connection import NoServer, NotScaled, ServerConnection, path
from swell.client.job import POLL_S, Job, Reason, job_path
from swell.client.needs import Needs, refused_as, render_job
from swell.errors import Rejected
from swell.machine.state_folder import StateFolder
from swell.model.quantity import duration_text

if TYPE_CHECKING:
    from swell.client.pools import PoolsClient
    from swell.client.remote import Remote
    from swell.client.transfer import LocalInput, Progress

T = TypeVar("T")

LOG_PATIENCE_S = 20.0  # a log is waited for longer: somebody else may be starting the server
ASK_AGAIN_S = 0.2
SILENT_S_MAX = 2.0  # a server that is away for longer is mentioned


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of a task's log."""

    start: int  #: offset of its first byte
    next: int  #: offset to read on from
    data: bytes
    is_complete: bool  #: no more can come


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of files."""

    jobs: tuple[Job, ...]  #: none after a dry run
    specs: tuple[dict[str, Any], ...]  #: each job as the server understood it, with `file` and `notes`


def _as_body(files: Mapping[str, str], arguments: Sequence[str] = (), sbatch: str = "") -> dict[str, Any]:
    """One manifest needs no name. A batch script does: its job has it unless it says another."""
    if len(files) == 1 and not (arguments or sbatch or next(iter(files.values())).startswith("#!")):
        return {"manifest": next(iter(files.values()))}
    more = {name: value for name, value in {"arguments": list(arguments), "options": sbatch}.items() if value}
    return {"files": [{"name": name, "text": text, **more} for name, text in files.items()]}


class Client:
    """One server. Cheap to make; one per thread."""

    def __init__(self, state: StateFolder | Remote, *, on_away: Callable[[str], None] = lambda _: None) -> None:
        """`on_away` is told, in words, when a server that somebody waits for does not answer, and when it does."""
        self.state = state
        self.connection = ServerConnection(state)
        self._on_away = on_away

    @property
    def is_elsewhere(self) -> bool:
        """Others run it: nothing of this machine, its folders, its environment, is there."""
        return not isinstance(self.state, StateFolder)

    # -- jobs --------------------------------------------------------------------------------------------------

    def submit(
        self, command: Sequence[str], *, name: str | None = None, wait_for_nodes: bool = False, **needs: Unpack[Needs]
    ) -> Job:
        """Accepted, i.e. on the server's disk, when this returns. `Needs` lists what else can be said of it.

        A job that could never run on the machines that are there is refused, unless it is to wait for others.
        """
        with refused_as(str):
            [job] = self.submit_manifest(render_job(command, name, needs), wait_for_nodes=wait_for_nodes)
        return job

    def submit_manifest(
        self,
        manifest: str | dict[str, Any],
        *,
        wait_for_nodes: bool = False,
        resize: str | None = None,
        takes_names: bool = False,
        via: str = "",
        env: Mapping[str, str] | None = None,
        uploaded: str = "",
    ) -> list[Job]:
        """Every job of a YAML file, all or none; or of one document.

        `resize`: how objects of Kubernetes that do not say so may be resized; None: at their checkpoints.
        `takes_names`: refused while a job has one of their names. `via`: the command whose words are used in refusals.
        `env`: variables beside this process's own. `uploaded`: of `send_folder`, in a copy of which tasks run.
        """
        given: dict[str, Any] = {"wait_for_nodes": wait_for_nodes, "resize": resize, "uploaded": uploaded}
        given |= {"takes_names": takes_names, "via": via}
        asked = {name: value for name, value in given.items() if value}  # a server of before knows none of them
        return [Job(self, document) for document in self._submit({"manifest": manifest, **asked}, env)["jobs"]]

    def submit_document(self, document: dict[str, Any], *, wait_for_nodes: bool = False) -> tuple[Job, list[str]]:
        """The one job of a document, and what its user may not expect, in words."""
        asked = {"wait_for_nodes": True} if wait_for_nodes else {}
        answer = self._submit({"manifest": document, **asked})
        [job] = answer["jobs"]
        return Job(self, job), answer.get("notes", [])

    def submit_files(
        self,
        files: Mapping[str, str],
        *,
        dry_run: bool = False,
        wait_for_nodes: bool = False,
        resize: str | None = None,
        takes_names: bool = False,
        in_images: bool = False,
        env: Mapping[str, str] | None = None,
        uploaded: str = "",
        suffix: str = "",
        replaces: bool = False,
        arguments: Sequence[str] = (),
        sbatch: str = "",
        commit: Mapping[str, str] | None = None,
    ) -> Submitted:
        """Every job of several YAML files by name, all or none, in one request. A dry run checks and submits nothing.

        `in_images`: AIchor manifests run in the image that they name, which is on this machine. `suffix`: added to the
        name of every manifest. `replaces`: objects of a cluster that have these names and have ended are deleted.
        `arguments`: of the batch script that the files are. `sbatch`: options that override those in batch scripts.
        `commit`: `sha` and `message` of what is checked out where they are, which AIchor manifests tell their tasks.
        The other arguments are those of `submit_manifest`.
        """
        given: dict[str, Any] = {
            "in_images": in_images,
            "dry_run": dry_run,
            "wait_for_nodes": wait_for_nodes,
            "resize": resize,
            "takes_names": takes_names,
            "uploaded": uploaded,
            "suffix": suffix,
            "replaces": replaces,
            "commit": commit,
        }
        asked = {name: value for name, value in given.items() if value}
        answer = self._submit({**_as_body(files, arguments, sbatch), **asked}, env)
        specs = [{**spec, "file": spec.get("file") or next(iter(files))} for spec in answer.get("specs", ())]
        return Submitted(tuple(Job(self, one) for one in answer.get("jobs", ())), tuple(specs))

    def render_files(
        self, files: Mapping[str, str], target: str, *, env: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Every job of YAML files as `text` in another notation, and in `losses` what that cannot express."""
        answer = self._submit({**_as_body(files), "render": target}, env)
        return [{**one, "file": one["file"] or next(iter(files))} for one in answer["rendered"]]

    def what_if(self, files: Mapping[str, str], *, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Of every job of YAML files: would it fit, when would it start, who would shrink? Nothing is submitted."""
        found: list[dict[str, Any]] = self._submit({**_as_body(files), "what_if": True}, env)["what_if"]
        return found

    def kinds(self) -> list[dict[str, str]]:
        """The kinds of documents that can be submitted."""
        found: list[dict[str, str]] = self.connection.json("GET", path("kinds"))["kinds"]
        return found

    def kind(self, name: str) -> dict[str, Any]:
        """The JSON Schema of a kind of documents."""
        found: dict[str, Any] = self.connection.json("GET", path("kinds", "schema", name=name))
        return found

    def _submit(self, asked: dict[str, Any], env: Mapping[str, str] | None = None) -> dict[str, Any]:
        around = self._surroundings()
        if env:
            if self.is_elsewhere:
                raise Rejected(
                    "--env needs a server on this machine; for a remote server, write the variables into the "
                    "manifest (env)"
                )
            around["env"] |= env
        body = {**asked, **around}
        key = {"Idempotency-Key": uuid.uuid4().hex}
        answer: dict[str, Any] = self.connection.json("POST", path("jobs"), body, headers=key)
        return answer

    def _surroundings(self) -> dict[str, Any]:
        """Where it is submitted from. The secrets in a laptop's environment have no place in a cluster."""
        if self.is_elsewhere:
            return {"workdir": "/"}
        umask = os.umask(0)
        os.umask(umask)
        return {"workdir": str(Path.cwd()), "umask": umask, "env": dict(os.environ)}

    def job(self, ref: str | int, *, sole: bool = False) -> Job:
        """By id or name; of several with one name the newest, with `sole` refused."""
        return Job(self, self.connection.json("GET", job_path(ref, **({"sole": True} if sole else {}))))

    def jobs(
        self,
        *,
        all: bool = False,  # noqa: A002
        user: str | None = None,
        all_users: bool = False,
        limit: int | None = None,
    ) -> list[Job]:
        """One's own; another user's or everybody's on a box server, of which less is told."""
        which = {"all": all, "user": user, "all_users": all_users}
        if limit is not None:
            answer = self.connection.json("GET", path("jobs", **which, limit=limit))
            return [Job(self, document) for document in answer["jobs"]]
        lines = self.connection.raw("GET", path("jobs", **which, lines=True)).data.splitlines()
        return [Job(self, json.loads(line)) for line in lines]

    def show(self, ref: str | int) -> dict[str, Any]:
        """Everything, with spec, attempts and events."""
        document: dict[str, Any] = self.connection.json("GET", job_path(ref, "show"))
        return document

    def cancel(self, ref: str | int, *, grace_s: float | None = None) -> Job:
        return Job(self, self.connection.json("POST", job_path(ref, "cancel"), {"grace_s": grace_s}))

    def cancel_several(self, refs: Sequence[str | int], *, grace_s: float | None = None) -> list[Job]:
        """All in one step, so that none starts in the room another gives back."""
        body = {"jobs": [str(ref) for ref in refs], "grace_s": grace_s}
        return [Job(self, found) for found in self.connection.json("POST", path("jobs", "cancel"), body)["jobs"]]

    def cancel_all(
        self, *, user: str | None = None, all_users: bool = False, grace_s: float | None = None
    ) -> list[Job]:
        """Every job of one's own that has not ended; an administrator says whose."""
        body = {"all": True, "user": user, "all_users": all_users, "grace_s": grace_s}
        return [Job(self, found) for found in self.connection.json("POST", path("jobs", "cancel"), body)["jobs"]]

    def hold(self, ref: str | int) -> Job:
        """Hold a job until it is released. A running job frees its resources at its next checkpoint."""
        return Job(self, self.connection.json("POST", job_path(ref, "hold"), {}))

    def release(self, ref: str | int) -> Job:
        return Job(self, self.connection.json("POST", job_path(ref, "release"), {}))

    def requeue(self, ref: str | int, *, now: bool = False) -> Job:
        """Start it again, from its last checkpoint when it has one."""
        return Job(self, self.connection.json("POST", job_path(ref, "requeue"), {"now": now}))

    def scale(self, ref: str | int, width: int | None, *, now: bool = False) -> Job:
        """Give it this width as soon as there is room; None: what the planner thinks best."""
        return Job(self, self.connection.json("POST", job_path(ref, "scale"), {"width": width, "now": now}))

    def scale_best(self, ref: str | None = None) -> bool:
        """At once, to all that a job could use now; None: the one that loses least. False: nobody gains by it."""
        try:
            self.connection.json("POST", "/scale" if ref is None else f"/scale/{quote(ref, safe='')}")
        except NotScaled:
            return False
        return True

    def server(self) -> dict[str, Any]:
        """Which server it is, how many jobs it knows by state, and how much work was lost so far."""
        found: dict[str, Any] = self.connection.json("GET", path("server"))
        return found

    def delete(self, ref: str | int, *, with_object: bool = False) -> None:
        """Forget an ended job; `with_object`: on a cluster also what came by kubectl, which is left otherwise."""
        self.connection.json("DELETE", job_path(ref, **({"with_object": True} if with_object else {})))

    def why(self, ref: str | int) -> Reason | None:
        return self.job(ref).why()

    def wait(self, ref: str | int, *, timeout_s: float | None = None) -> Job:
        return self.job(ref).wait(timeout_s=timeout_s)

    def patiently(self, ask: Callable[[], T], patience_s: float) -> T:
        """For those who wait: a job does not end because its server did, and a server is soon started again."""
        place = self.connection.place
        within_s = max(patience_s, place.patience_s)
        since: float | None = None  # None: it has answered
        is_told = False
        while True:
            try:
                answer = ask()
                break
            except NoServer:
                now = time.monotonic()
                since = now if since is None else since
                away_s = now - since
                if away_s > within_s:
                    raise
            if away_s > SILENT_S_MAX and not is_told:
                self._on_away(f"{place} does not answer; waiting up to {duration_text(within_s)} (jobs keep running)")
                is_told = True
            time.sleep(ASK_AGAIN_S)
        if is_told:
            self._on_away(f"{place} answers again")
        return answer

    # -- files of jobs -----------------------------------------------------------------------------------------

    def send_folder(
        self, folder: Path | str, inputs: Sequence[LocalInput] = (), progress: Progress | None = None
    ) -> str:
        """Its id, for `uploaded` of a job. Without what .gitignore and .swellignore name; only what is new is sent."""
        from swell.client.transfer import send_folder

        more = {} if progress is None else {"progress": progress}
        return send_folder(self.connection, Path(folder), inputs, **more).id

    def fetch_outputs(
        self, ref: str | int, into: Path | str, *, attempt: int | None = None, replaces: bool = False
    ) -> int:
        """The files that a job's `outputs` name, as its latest attempt has sent them: how many."""
        from swell.client.transfer import fetch_outputs, list_outputs

        found = list_outputs(self.connection, ref, attempt)
        return fetch_outputs(self.connection, found, Path(into), replaces=replaces)

    # -- logs, events, nodes -----------------------------------------------------------------------------------

    def logs(
        self,
        ref: str | int,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        offset: int = 0,
        since: float | None = None,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """A task's output so far, in pieces; with `follow` until it has ended."""
        while True:
            wait_s = POLL_S if follow else 0.0
            ask = partial(self.read_log, ref, rank=rank, attempt=attempt, offset=offset, since=since, wait_s=wait_s)
            piece = self.patiently(ask, LOG_PATIENCE_S) if follow else ask()
            offset, since = piece.next, None
            if piece.data:
                yield piece.data
            elif not follow or piece.is_complete:
                return

    def read_log(
        self,
        ref: str | int,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        offset: int = 0,
        since: float | None = None,
        wait_s: float = 0.0,
    ) -> LogPiece:
        """What stands at an offset (negative: so far from the end), at most a mebibyte; waits for more if told so."""
        query = {"rank": rank, "attempt": attempt, "offset": offset, "since": since, "wait_s": wait_s}
        answer = self.connection.raw("GET", job_path(ref, "logs", **query))
        start, following = int(answer.headers["Swell-Offset"]), int(answer.headers["Swell-Next-Offset"])
        return LogPiece(start, following, answer.data, answer.headers["Swell-Complete"] == "true")

    def events(self, *, job: str | int | None = None, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        answer = self.connection.json("GET", path("events", job=job, after=after, limit=limit))
        events: list[dict[str, Any]] = answer["events"]
        return events

    def follow_events(self, *, job: str | int | None = None, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Events as they happen, without end."""
        for line in self.connection.lines(path("events", "stream", job=job, after=after)):
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def place(self, ref: str | int, *, rank: int | None = None) -> dict[str, Any]:
        """Where a running task is: `node`, `pid` of its keeper, `container` (None: a plain process), `runtime`."""
        found: dict[str, Any] = self.connection.json("GET", job_path(ref, "exec", rank=rank))
        return found

    def nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self.connection.json("GET", path("nodes"))["nodes"]
        return nodes

    def plan_snapshot(self) -> dict[str, Any]:
        """All that the server's last plan was made from, and that plan; for administrators."""
        found: dict[str, Any] = self.connection.json("GET", path("debug", "snapshot"))
        return found

    def usage(
        self,
        *,
        days: int | None = None,
        since: str | None = None,
        by: str = "user",
        user: str | None = None,
        all_users: bool = False,
    ) -> dict[str, Any]:
        """GPU-hours and CPU-hours by user and day; docs/json.md has the fields."""
        query = {"days": days, "since": since, "by": by, "user": user, "all_users": all_users}
        found: dict[str, Any] = self.connection.json("GET", path("usage", **query))
        return found

    def history(
        self,
        *,
        days: int | None = None,
        since: str | None = None,
        user: str | None = None,
        all_users: bool = False,
    ) -> dict[str, Any]:
        """Jobs that have ended, as a workload that `swell sim` reads; docs/json.md has the fields."""
        query = {"days": days, "since": since, "user": user, "all_users": all_users}
        found: dict[str, Any] = self.connection.json("GET", path("history", **query))
        return found

    # -- doors for the clients of other systems ----------------------------------------------------------------

    def doors(self) -> list[dict[str, Any]]:
        """Ports that are open without a token."""
        doors: list[dict[str, Any]] = self.connection.json("GET", path("doors"))["doors"]
        return doors

    def open_door(self, name: str, port: int, *, user: str | None = None) -> dict[str, Any]:
        """In the name of that user; None: one's own."""
        asked = {"name": name, "port": port, "user": user}
        door: dict[str, Any] = self.connection.json("POST", path("doors"), asked)
        return door

    def close_door(self, port: int) -> None:
        self.connection.json("DELETE", path("doors", port))

    def door_address(self, name: str, *, lasts_s: float) -> dict[str, Any]:
        """One that needs no header, until it expires or is revoked; only this answer has it."""
        made: dict[str, Any] = self.connection.json(
            "POST", path("doors", "address"), {"name": name, "lasts_s": lasts_s}
        )
        return made

    def door_addresses(self, *, all_users: bool = False) -> list[dict[str, Any]]:
        found = self.connection.json("GET", path("doors", "addresses", all_users=all_users))
        return list(found["addresses"])

    def revoke_door_address(self, address: str) -> None:
        self.connection.json("DELETE", path("doors", "addresses", address))

    @property
    def pools(self) -> PoolsClient:
        """What starts workers when jobs wait."""
        from swell.client.pools import PoolsClient

        return PoolsClient(self.connection)

    def create_token(self, name: str, *, scope: str, lasts_s: float, group: str = "") -> dict[str, Any]:
        """Only this answer has the token itself. `group`: of a worker's token, whose jobs it runs."""
        asked = {"name": name, "scope": scope, "lasts_s": lasts_s, **({"group": group} if group else {})}
        made: dict[str, Any] = self.connection.json("POST", path("tokens"), asked)
        return made

    def tokens(self, *, all_users: bool = False) -> list[dict[str, Any]]:
        return list(self.connection.json("GET", path("tokens", all_users=all_users))["tokens"])

    def rotate_job_secret(self) -> int:
        """How many attempts run now, which keep their tokens until they end."""
        return int(self.connection.json("POST", path("job-secret", "rotate"))["running_attempts"])

    def revoke_token(self, token: str) -> None:
        self.connection.json("DELETE", path("tokens", token))
