"""Tokens that users make: shown once, kept as a hash, scoped, expiring, revoked at once."""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.people import ADMIN, OTHER, OWNER, ask, name_of
from api.service import JOB_SECRET, USER, Answer, Service, submission
from api.trainee import GO_ON, Trainee
from swell.api.box import Box
from swell.api.members import Members
from swell.controller.reporting import make_token
from swell.model.job import AttemptId

from .test_members import Cluster, objects_of


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("private"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """OTHER is an administrator by their group."""
    group = grp.getgrgid(pwd.getpwuid(OTHER).pw_gid).gr_name
    made = Service(tmp_path_factory.mktemp("box"), box=Box(group, runtime_folder=lambda _: Path("/run/swell-test")))
    yield made
    made.close()


def make(service: Service, name: str, token: str | None = USER, **body: Any) -> Answer:
    return service.ask("POST", "/tokens", {"name": name, **body}, token=token)


def listed(service: Service) -> list[dict[str, Any]]:
    return list(service.ask("GET", "/tokens").json["tokens"])


def test_a_token_is_shown_once_and_only_its_hash_is_kept(private):
    answer = make(private, "ci", scope="submit", lasts_s=3600)
    assert answer.status == 201
    text = answer.json["token"]
    assert re.fullmatch(r"swt\.[0-9a-f]{10}\.[A-Za-z0-9_-]{43}", text)
    [shown] = [one for one in listed(private) if one["name"] == "ci"]
    assert shown == {name: value for name, value in answer.json.items() if name != "token"}
    assert shown.keys() == {"id", "name", "user", "scope", "created_at", "expires_at", "is_expired"}
    secret = text.rpartition(".")[2].encode()
    for path in private.state.root.glob("swell.db*"):
        assert secret not in path.read_bytes(), path
    assert secret not in private.ask("GET", "/events").data
    made = [event for event in private.ask("GET", "/events").json["events"] if event["kind"] == "TokenCreated"]
    assert made[-1]["detail"]["name"] == "ci"
    assert made[-1]["actor"] == "ann"


def test_a_revoked_token_is_refused_at_once(private):
    text = make(private, "short", scope="submit").json["token"]
    assert private.ask("GET", "/jobs", token=text).status == 200
    assert private.ask("DELETE", "/tokens/short").status == 204
    assert private.ask("GET", "/jobs", token=text).error == (
        401,
        "Denied",
        "this token does not belong to this server, or it has been revoked; see `swell token list`",
    )
    assert "short" not in [one["name"] for one in listed(private)]
    assert private.ask("DELETE", "/tokens/short").error == (
        404,
        "NotFound",
        "there is no token 'short'; `swell token list` lists yours",
    )


def test_an_expired_token_says_that_it_has_expired_only_to_who_has_it(private):
    text = make(private, "brief", lasts_s=0.001).json["token"]
    status, kind, said = private.ask("GET", "/jobs", token=text).error
    assert (status, kind) == (401, "Denied")
    assert re.fullmatch(r"the token 'brief' expired at \S+; make another: swell token create NAME", said)
    forged = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert "expired" not in private.ask("GET", "/jobs", token=forged).error[2]
    [shown] = [one for one in listed(private) if one["name"] == "brief"]
    assert shown["is_expired"] is True


def test_a_scope_opens_so_much_and_the_refusal_says_what_is_needed(private):
    text = make(private, "looks").json["token"]
    assert private.ask("POST", "/jobs", submission(), token=text).error == (
        403,
        "Denied",
        (
            "the token 'looks' has the scope read, and this needs submit; "
            "make a token with that scope: swell token create NAME --scope submit"
        ),
    )
    text = make(private, "runs", scope="submit").json["token"]
    job = private.ask("POST", "/jobs", submission("by-token", gpus=99), token=text)
    assert job.status == 201
    assert private.ask("POST", "/server/stop", token=text).status == 403
    admin = make(private, "rules", scope="admin").json["token"]
    assert private.ask("GET", "/metrics", token=admin, prefix="").status == 200


def test_what_a_token_did_says_so(private):
    text = make(private, "named", scope="submit").json["token"]
    answer = private.ask("POST", "/jobs", submission("from-afar", gpus=99), token=text)
    job = answer.json["jobs"][0]["id"]
    [event] = private.ask("GET", f"/events?job={job}&limit=1").json["events"]
    assert (event["kind"], event["actor"]) == ("Submitted", "ann")
    assert re.fullmatch(r"127\.0\.0\.1:\d+ token named", event["origin"])


FOR_ADMINISTRATORS = [
    ("GET", "/usage?all_users=true", None),
    ("GET", "/tokens?all_users=true", None),
    ("GET", "/doors/addresses?all_users=true", None),
    ("POST", "/jobs/cancel", {"all": True, "all_users": True}),
]


@pytest.mark.parametrize(("method", "path", "body"), FOR_ADMINISTRATORS)
def test_what_is_for_administrators_names_the_scope_when_that_is_why(box, method, path, body):
    """Root was told to be no administrator: their token had the scope submit."""
    name = f"few{path.replace('/', '-').partition('?')[0]}"
    text = ask(box, ADMIN, "POST", "/tokens", {"name": name, "scope": "submit"}).json["token"]
    status, kind, said = box.ask(method, path, body, token=text).error
    assert (status, kind) == (403, "Denied")
    assert f"the token {name!r} has the scope submit; make a token with the scope admin: swell token create" in said
    theirs = ask(box, OWNER, "POST", "/tokens", {"name": name, "scope": "submit"}).json["token"]
    assert "scope" not in box.ask(method, path, body, token=theirs).error[2], "theirs could not have it"


@pytest.mark.parametrize("scope", ["read", "submit", "admin"])
def test_a_token_makes_no_other(private, scope):
    text = make(private, f"father-{scope}", scope=scope).json["token"]
    said = "a token cannot make other tokens or addresses; run the command on the server's machine as yourself"
    assert make(private, "son", token=text).error == (403, "Denied", said)
    for path in ("/doors/address", "/doors/address/", "/tokens/"):
        assert private.ask("POST", path, {"name": "genai"}, token=text).error == (403, "Denied", said)


def test_a_name_is_given_once_and_is_one_word(private):
    assert make(private, "twice").status == 201
    assert make(private, "twice").error == (
        409,
        "Conflict",
        "'ann' has a token named 'twice'; choose another name, or revoke that one first: swell token revoke twice",
    )
    for name in ("", "a b", "-x", "../x", "x" * 64, "a\n"):
        assert make(private, name).status == 422, name
    for body in ({"scope": "root"}, {"lasts_s": 0}, {"lasts_s": 1e9}, {"scoop": "read"}):
        assert make(private, "good", **body).status == 422, body


def test_on_a_box_everybody_makes_their_own_and_acts_as_themselves_with_it(box):
    answer = ask(box, OWNER, "POST", "/tokens", {"name": "laptop", "scope": "submit"}).json
    assert answer["user"] == name_of(OWNER)
    job = box.ask("POST", "/jobs", submission("remote", gpus=99), token=answer["token"]).json["jobs"][0]["id"]
    found = box.store.job(job)
    assert (found.owner, found.uid) == (name_of(OWNER), OWNER)
    assert "laptop" not in [one["name"] for one in ask(box, ADMIN, "GET", "/tokens").json["tokens"]]
    everybodys = ask(box, ADMIN, "GET", "/tokens?all_users=true").json["tokens"]
    assert (name_of(OWNER), "laptop") in [(one["user"], one["name"]) for one in everybodys]
    assert ask(box, OTHER, "DELETE", "/tokens/laptop").status == 404, "a name means one's own"
    assert ask(box, OTHER, "DELETE", f"/tokens/{answer['id']}").status == 204, "an administrator may, by id"
    assert box.ask("GET", "/jobs", token=answer["token"]).status == 401


def test_on_a_box_the_rights_of_a_token_are_those_that_its_user_has_now(box):
    text = ask(box, OTHER, "POST", "/tokens", {"name": "rules", "scope": "admin"}).json["token"]
    assert box.ask("GET", "/metrics", token=text, prefix="").status == 200
    box.services.box._known.clear()
    box.services.box._admin_group = "nobodys-group"
    assert box.ask("GET", "/metrics", token=text, prefix="").status == 403
    assert ask(box, OWNER, "POST", "/tokens", {"name": "rules", "scope": "admin"}).error == (
        403,
        "Denied",
        f"only an administrator of this machine may make a token with the scope admin; you are {name_of(OWNER)!r}",
    )


def test_on_a_cluster_a_token_has_the_rights_of_its_users_name_and_is_never_shown_to_the_cluster(tmp_path):
    cluster = Cluster()
    members = Members(cluster, objects_of, owner="ann", admin_group="swell-admin")
    service = Service(tmp_path, members=members)
    try:
        text = make(service, "pipeline", token="bens", scope="submit").json["token"]
        cluster.asked.clear()
        answer = service.ask("POST", "/jobs", submission("piped", gpus=99), token=text)
        assert service.store.job(answer.json["jobs"][0]["id"]).owner == "system:serviceaccount:ml:ben"
        assert service.ask("GET", "/jobs", token=text + "x").status == 401
        assert cluster.asked == []
        [(identity, _)] = cluster.created
        assert identity.user == "system:serviceaccount:ml:ben"
        status, _, said = make(service, "mine", token="operators", scope="admin").error
        assert (status, said.partition(";")[0]) == (
            403,
            "only the holder of the server's own token can make a token with the scope admin",
        )
        admin = make(service, "mine", scope="admin").json["token"]
        assert service.ask("GET", "/tokens?all_users=true", token=admin).status == 200
    finally:
        service.close()
        members.close()


def test_a_job_that_runs_reports_on_when_the_secret_of_jobs_is_replaced_and_later_ones_get_another(private):
    """A new secret ended the tokens of all running jobs."""
    trainee = Trainee(private)
    assert trainee.report(metrics={"loss": 1.0}).json == GO_ON
    assert private.ask("POST", "/job-secret/rotate").json["running_attempts"] >= 1
    assert trainee.report(metrics={"loss": 0.5}).json == GO_ON
    address = f"/d/{trainee.token}/get_all_jobs"
    assert private.ask("GET", address, token=None, prefix="").status == 200
    later = private.submit("later")
    launch = private.worker.until_asked(later)
    token = dict(launch["own"])["SWELL_TOKEN"]
    assert token.rpartition(".")[2] != make_token(JOB_SECRET, AttemptId(later, 1), float(token.split(".")[3]))
    forged = make_token(JOB_SECRET, AttemptId(later, 1), 4e9)
    private.worker.begin(later)
    for text, status in ((forged, 401), (token, 200)):
        answer = private.ask("POST", f"/attempts/{later}.1/report", {"rank": 0}, token=text)
        assert answer.status == status, answer.data
    private.worker.end(trainee.job, 0)
    assert trainee.report(metrics={"loss": 0.1}).status == 401
    private.worker.end(later)
    kinds = [event["kind"] for event in private.ask("GET", "/events").json["events"]]
    assert kinds.count("JobSecretRotated") == 1
