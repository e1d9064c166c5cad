"""Every route asked with every kind of credential: who may what, whole.

A box server over TCP, where a credential is all that says who asks. The rows come from the application's routes: a new
one without a row fails.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.people import OTHER, OWNER, ask, submit
from api.service import JOB_SECRET, USER, WORKER, Service, submission
from swell.api.box import Box, Caller
from swell.api.credentials import TOKEN, make_credential
from swell.controller.reporting import make_token
from swell.model.job import AttemptId

from .doors.foreign import of_job
from .test_box import filled

FOREVER = 4e9

#: Kinds of credentials. `another`: of a user whose job it is not; `boss`: of an administrator who is not root.
KINDS = (
    *("none", "garbage", "revoked", "expired", "forged", "gone"),
    *("read", "submit", "another", "boss", "admin"),
    *("root", "worker", "job", "address"),
)
OPEN = dict.fromkeys(KINDS, 200)
NOBODY = dict.fromkeys(("none", "garbage", "revoked", "expired", "forged", "address"), 401) | {
    "gone": 403,
    "worker": 403,
    "job": 403,
}


def reading(status: int, another: int | None = None) -> dict[str, int]:
    """What every scope opens; `another`: the status for who has nothing to do with it (None: the same)."""
    good = dict.fromkeys(("read", "submit", "boss", "admin", "root"), status)
    return NOBODY | good | {"another": status if another is None else another}


def writing(status: int, another: int | None = None) -> dict[str, int]:
    return reading(status, another) | {"read": 403}


def of_admins(status: int) -> dict[str, int]:
    """`boss` has the scope submit, which is less than its user may."""
    return NOBODY | dict.fromkeys(("read", "submit", "another", "boss"), 403) | {"admin": status, "root": status}


def of_root(status: int) -> dict[str, int]:
    """What no token opens, whatever its scope: only who needs none."""
    return of_admins(403) | {"root": status}


OF_WORKERS = dict.fromkeys(KINDS, 403) | dict.fromkeys(
    ("none", "garbage", "address", "revoked", "expired", "forged"), 401
)
OF_JOBS = dict.fromkeys(KINDS, 403) | dict.fromkeys(("none", "garbage", "address"), 401)


def door(status: int) -> dict[str, int]:
    """Whoever may not come in learns of no door."""
    return dict.fromkeys(KINDS, 404) | dict.fromkeys(("submit", "another", "boss", "admin", "root"), status)


#: (method, path) → body, and the status by kind of credential. `ref`: a job of the tokens' user.
ROUTES: dict[tuple[str, str], tuple[Any, dict[str, int]]] = {
    ("GET", "/healthz"): (None, OPEN),
    ("GET", "/readyz"): (None, OPEN),
    ("GET", "/metrics"): (None, of_admins(200)),
    ("GET", "/api/v1/openapi.json"): (None, reading(200)),
    ("GET", "/api/v1/health"): (None, OPEN),
    ("GET", "/api/v1/server"): (None, reading(200)),
    ("POST", "/api/v1/server/stop"): (None, of_admins(202)),
    ("GET", "/api/v1/nodes"): (None, reading(200)),
    ("GET", "/api/v1/kinds"): (None, reading(200)),
    ("GET", "/api/v1/kinds/schema"): (None, reading(422)),
    ("GET", "/api/v1/usage"): (None, reading(200)),
    ("GET", "/api/v1/history"): (None, reading(200)),
    ("GET", "/api/v1/events"): (None, reading(200)),
    ("GET", "/api/v1/events/stream"): (None, reading(404)),
    ("GET", "/api/v1/jobs"): (None, reading(200)),
    ("POST", "/api/v1/jobs"): (submission("new", gpus=99), writing(201)),
    ("POST", "/api/v1/jobs/cancel"): ({"jobs": ["{ref}"]}, writing(200, 404) | {"boss": 404}),
    ("GET", "/api/v1/jobs/{ref}"): (None, reading(200, 404) | {"boss": 404}),
    ("GET", "/api/v1/jobs/{ref}/show"): (None, reading(200, 404) | {"boss": 404}),
    ("GET", "/api/v1/jobs/{ref}/logs"): (None, reading(200, 404) | {"boss": 404}),
    ("GET", "/api/v1/jobs/{ref}/exec"): (None, reading(409, 404) | {"boss": 404}),
    ("DELETE", "/api/v1/jobs/{ref}"): (None, writing(409, 404) | {"boss": 404}),
    ("POST", "/api/v1/jobs/{ref}/cancel"): ({}, writing(200, 404) | {"boss": 404}),
    ("POST", "/api/v1/jobs/{ref}/hold"): ({}, writing(200, 404) | {"boss": 404}),
    ("POST", "/api/v1/jobs/{ref}/release"): ({}, writing(409, 404) | {"boss": 404}),
    ("POST", "/api/v1/jobs/{ref}/requeue"): ({}, writing(409, 404) | {"boss": 404}),
    ("POST", "/api/v1/jobs/{ref}/scale"): ({"width": None}, writing(200, 404) | {"boss": 404}),
    ("GET", "/api/v1/jobs/{ref}/outputs"): (None, reading(422)),
    ("POST", "/api/v1/files/{what}"): ({}, writing(422)),
    ("GET", "/api/v1/files/folders/{folder}"): (None, reading(422)),
    ("GET", "/api/v1/pools"): (None, reading(200)),
    ("POST", "/api/v1/pools/sync"): ({}, of_admins(422)),
    ("POST", "/api/v1/pools/worker-token"): ({}, of_admins(422)),
    ("POST", "/api/v1/pools/kill"): ({"worker": "none"}, of_admins(404)),
    ("POST", "/api/v1/pools/{name}/stop"): ({}, of_admins(404)),
    ("GET", "/api/v1/debug/snapshot"): (None, of_admins(200)),
    ("GET", "/api/v1/doors"): (None, reading(200)),
    ("POST", "/api/v1/doors"): ({"name": "nowhere", "port": 0}, of_admins(422)),
    ("DELETE", "/api/v1/doors/{port}"): (None, of_admins(404)),
    ("POST", "/api/v1/doors/address"): ({"name": "genai"}, of_root(201)),
    ("GET", "/api/v1/doors/addresses"): (None, reading(200)),
    ("DELETE", "/api/v1/doors/addresses/{token}"): (None, of_admins(404)),
    ("POST", "/api/v1/tokens"): ({"name": "{unique}"}, of_root(201)),
    ("GET", "/api/v1/tokens"): (None, reading(200)),
    ("DELETE", "/api/v1/tokens/{token}"): (None, of_admins(404)),
    ("POST", "/api/v1/workers/sync"): ({}, OF_WORKERS | {"worker": 422}),
    ("GET", "/api/v1/workers/environments/{digest}"): (None, OF_WORKERS | {"worker": 404}),
    ("POST", "/api/v1/workers/logs"): ({}, OF_WORKERS | {"worker": 422}),
    ("POST", "/api/v1/workers/leave"): ({}, OF_WORKERS | {"worker": 422}),
    ("POST", "/api/v1/attempts/{attempt}/report"): ({}, OF_JOBS | {"job": 422}),
    ("GET", "/api/v1/attempts/{attempt}/control"): (None, OF_JOBS | {"job": 409}),
    ("POST", "/api/v1/attempts/{attempt}/trainer-status"): ({}, OF_JOBS | {"job": 200}),
    # The last one: afterwards the job's token is of a secret that is no longer good for it.
    ("POST", "/api/v1/job-secret/rotate"): (None, of_admins(200)),
}


@dataclass(frozen=True)
class Credentials:
    """A text of each kind, made once."""

    texts: dict[str, str | None]
    job: int  #: of the user whose tokens they are


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """OWNER and OTHER are users; the user `boss()` is an administrator."""
    group = grp.getgrgid(pwd.getpwuid(boss()).pw_gid).gr_name
    made = Service(tmp_path_factory.mktemp("box"), box=Box(group, runtime_folder=lambda _: Path("/run/swell-test")))
    yield made
    made.close()


def boss() -> int:
    """A user whose group is neither root's nor that of the other two."""
    taken = {pwd.getpwuid(uid).pw_gid for uid in (0, OWNER, OTHER)}
    return next(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid < 60_000 and entry.pw_gid not in taken)


def made(service: Service, uid: int, name: str, scope: str = "read", **body: Any) -> str:
    answer = ask(service, uid, "POST", "/tokens", {"name": name, "scope": scope, **body})
    assert answer.status == 201, answer.data
    return str(answer.json["token"])


@pytest.fixture(scope="module")
def credentials(box: Service) -> Credentials:
    job = submit(box, OWNER, "theirs")
    revoked = made(box, OWNER, "revoked", "submit")
    assert ask(box, OWNER, "DELETE", "/tokens/revoked").status == 204
    expired = made(box, OWNER, "expired", "submit", lasts_s=0.001)
    read = made(box, OWNER, "reads")
    address = ask(box, OWNER, "POST", "/doors/address", {"name": "genai"}).json["address"]
    texts = {
        "none": None,
        "garbage": "guessed",
        "revoked": revoked,
        "expired": expired,
        "forged": read[:-1] + ("A" if read[-1] != "A" else "B"),
        "gone": _of_somebody_gone(box),
        "read": read,
        "submit": made(box, OWNER, "submits", "submit"),
        "another": made(box, OTHER, "submits", "submit"),
        "boss": made(box, boss(), "submits", "submit"),
        "admin": made(box, boss(), "administers", "admin"),
        "root": USER,
        "worker": WORKER,
        "job": make_token(JOB_SECRET, AttemptId(job, 1), FOREVER),
        "address": address.rpartition("/")[2],
    }
    assert tuple(texts) == KINDS
    return Credentials(texts, job)


def _of_somebody_gone(box: Service) -> str:
    """A good token of an account that has been removed since, whose number another has now."""
    caller = Caller("removed", is_admin=False, uid=OWNER)
    token = make_credential(TOKEN, caller, name="left", scope="submit", now=0.0, expires_at=FOREVER)
    box.store.tokens.create(token.record, caller.did("TokenCreated")).result()
    return token.text


def routes_of(app: Any) -> set[tuple[str, str]]:
    return {(method, route.path) for route in app.routes for method in route.methods if method != "HEAD"}


def test_every_route_has_a_row(box: Service) -> None:
    assert set(ROUTES) == routes_of(box.app._app)


def statuses(box: Service, credentials: Credentials, method: str, path: str, body: Any) -> dict[str, int]:
    """A job of its own for each, so that none finds what another did."""
    found = {}
    for kind, text in credentials.texts.items():
        job = credentials.job if "{attempt}" in path else submit(box, OWNER, "asked-for")
        asked = filled(path, job) + ("?job=999999" if path.endswith("/stream") else "")
        found[kind] = box.ask(method, asked, filled(body, job), token=text, prefix="").status
    return found


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_who_may_what(box: Service, credentials: Credentials, method: str, path: str) -> None:
    body, expected = ROUTES[method, path]
    assert statuses(box, credentials, method, path, body) == expected


def test_every_route_of_the_doors_needs_a_token_that_may_submit(box: Service, credentials: Credentials) -> None:
    """A GET of another system may change something (has_to_stop does), so the scope read opens none."""
    asked = sorted(routes_of(box.app._doors._all))
    assert len(asked) >= 20
    for method, path in asked:
        known = {"{name}": "x", "{uuid}": "x", "{namespace}": "x", "{difference:int}": "1", "{needed:int}": "1"}
        for name, text in known.items():
            path = path.replace(name, text)
        body = {} if method != "GET" else None
        found = {
            kind: box.ask(method, path, body, token=text, prefix="").json for kind, text in credentials.texts.items()
        }
        nothing = {"error": {"kind": "NotFound", "message": "there is nothing here"}}
        refused = {kind for kind, answer in found.items() if answer == nothing}
        assert refused == {kind for kind, status in door(200).items() if status == 404}, f"{method} {path}"


def test_a_jobs_address_and_a_users_open_doors_and_nothing_else(box: Service, credentials: Credentials) -> None:
    for text in (credentials.texts["address"], of_job(box, credentials.job).address.rpartition("/")[2]):
        for method, path in ROUTES:
            asked = f"/d/{text}{filled(path, credentials.job)}"
            assert box.ask(method, asked, None, token=None, prefix="").status == 404, asked
