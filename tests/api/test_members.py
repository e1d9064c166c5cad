"""One server for everybody in a cluster: whose a token is, what they may create, and what they see of others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from api.doors.foreign import Foreign
from api.service import USER, WAIT_S, WORKER, Answer, QuietCluster, Service
from api.service import submission as any_submission
from swell.api.members import REMEMBERED_S, REVIEWS_OF_EACH, UNKNOWN_REMEMBERED_S, Members
from swell.config import parse_config
from swell.errors import Denied, Unavailable
from swell.manifests import Manifest
from swell.model.identity import Identity, ObjectKind
from swell.store import NewJob

from .test_box import ENDPOINTS, filled

ANNA = Identity("anna", ("ml",), "u-1", (("scopes", ("user:full",)),))
BEN = Identity("system:serviceaccount:ml:ben", ("system:serviceaccounts",))
PEOPLE = {
    "annas": ANNA,
    "bens": BEN,
    "evas": Identity("eva", ()),
    "operators": Identity("ops", ("swell-admin",)),
    "imposters": Identity("ann"),  # as the server calls whoever has its own token
}
UNKNOWN = "the cluster does not know whose this token is; make a new one: kubectl create token"


def submission(name: str, **spec: Any) -> dict[str, Any]:
    """On Kubernetes every job has an image."""
    return any_submission(name, image="busybox", **spec)


class Cluster(QuietCluster):
    """Knows some tokens, and lets everybody create in every namespace but one."""

    def __init__(self) -> None:
        super().__init__({"ml": ("8", "5"), "closed": ("2", "1")})
        self.people = dict(PEOPLE)
        self.asked: list[str] = []
        self.created: list[tuple[Identity, ObjectKind]] = []
        self.problem: Exception | None = None
        self.dismissed: set[str] = set()  #: users who may not create anything any more

    def who(self, token: str) -> Identity | None:
        self.asked.append(token)
        if self.problem is not None:
            raise self.problem
        return self.people.get(token)

    def may_create(self, identity: Identity, what: ObjectKind) -> bool:
        self.created.append((identity, what))
        return what.namespace != "closed" and identity.user not in self.dismissed

    def is_namespace(self, name: str) -> bool:
        return name in ("closed", "open")

    def may_delete(self, identity: Identity, what: ObjectKind) -> bool:
        return what.namespace != "closed" and identity.user != BEN.user


def objects_of(manifest: Manifest) -> tuple[ObjectKind, ...]:
    return (ObjectKind("v1", "Pod", "closed" if manifest.spec.name == "elsewhere" else "ml"),)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, clock: Clock) -> Iterator[Service]:
    members = Members(cluster, objects_of, owner="ann", admin_group="swell-admin", admins=("eva",), monotonic=clock)
    limits = {"limits": {"default": {"priority": 9}}}
    folder = tmp_path_factory.mktemp("members")
    made = Service(
        folder,
        members=members,
        config=parse_config(limits),
        cluster=cluster,
    )
    yield made
    made.close()
    members.close()


@pytest.fixture(autouse=True)
def fresh(cluster: Cluster, clock: Clock) -> None:
    clock.now += REMEMBERED_S
    cluster.people, cluster.problem = dict(PEOPLE), None
    cluster.asked.clear()
    cluster.created.clear()
    cluster.deleted.clear()


def ask(service: Service, token: str | None, method: str, path: str, body: Any = None) -> Answer:
    return service.ask(method, path, body, token=token)


def job_ids(service: Service) -> list[int]:
    return [job["id"] for job in ask(service, USER, "GET", "/jobs?all_users=true").json["jobs"]]


def submit(service: Service, token: str, name: str = "job", **spec: Any) -> int:
    answer = ask(service, token, "POST", "/jobs", submission(name, gpus=99, **spec))
    assert answer.status == 201, answer.data
    return int(answer.json["jobs"][0]["id"])


STREAMS = {key for key in ENDPOINTS if "stream" in key[1]}  # they never end for whoever may read them
PREFIXED = [key for key in ENDPOINTS if key not in STREAMS and key[1] not in ("/healthz", "/readyz", "/metrics")]

NOT_ON_A_BOX = {("POST", "/pools/worker-token"): 201}  # what an administrator gets where there may be pools


@pytest.mark.parametrize(("method", "path"), PREFIXED)
def test_whoever_may_ask_a_box_may_ask_here_and_a_stranger_nothing(service: Service, method: str, path: str) -> None:
    body, (owner, other, admin, _) = ENDPOINTS[method, path]
    admin = NOT_ON_A_BOX.get((method, path), admin)
    body = submission("new", gpus=99) if (method, path) == ("POST", "/jobs") else body
    is_for_people = not path.startswith(("/workers", "/attempts", "/health"))
    expected = (owner, other, admin, 401) if is_for_people else (owner, other, admin, owner)
    found = []
    for token in ("annas", "bens", "operators", "nobodys"):
        job = submit(service, "annas")
        found.append(ask(service, token, method, filled(path, job), filled(body, job)).status)
        ask(service, USER, "POST", f"/jobs/{job}/cancel")
    assert tuple(found) == expected


PRIVILEGED = """apiVersion: v1
kind: Pod
metadata: {name: root}
spec:
  volumes:
  - name: node
    hostPath: {path: /}
  containers:
  - {name: a, image: i, command: [a]}
"""


def test_a_pod_that_reaches_into_its_node_is_created_for_administrators_only(service: Service) -> None:
    body = {"manifest": PRIVILEGED, "workdir": "/", "wait_for_nodes": True}
    before = job_ids(service)
    said = (
        "line 7: spec.volumes[0].hostPath asks for a folder of its node, which Swell creates for administrators only; "
        "leave it out, create the object with kubectl, or allow it to all jobs with "
        '"node_rights": true in config.json'
    )
    assert ask(service, "annas", "POST", "/jobs", body).error == (403, "Denied", said)
    assert job_ids(service) == before
    assert ask(service, "operators", "POST", "/jobs", body).status == 201


def test_a_job_is_its_submitters_and_others_learn_nothing_of_it(service: Service) -> None:
    mine, theirs = submit(service, "annas"), submit(service, "bens")
    assert service.store.job(theirs).owner == "system:serviceaccount:ml:ben"
    listed = [job["id"] for job in ask(service, "annas", "GET", "/jobs").json["jobs"]]
    assert (mine in listed, theirs in listed) == (True, False)
    assert ask(service, "annas", "GET", f"/jobs/{theirs}").error == (
        404,
        "NotFound",
        f"there is no job {theirs}; `swell ps -a` lists all",
    )
    assert service.store.job(mine).uid is None


def test_who_lists_their_own_is_told_how_many_others_have(service: Service) -> None:
    """What came by kubectl is its namespace's: a list without it looked as if nothing ran."""
    submit(service, "annas")
    submit(service, "bens")
    mine = ask(service, USER, "GET", "/jobs").json
    everybodys = ask(service, USER, "GET", "/jobs?all_users=true").json
    assert mine["of_others"] == len(everybodys["jobs"]) - len(mine["jobs"]) >= 2
    assert everybodys["of_others"] == 0
    assert ask(service, USER, "GET", "/jobs?user=anna").json["of_others"] == 0, "one person was asked for"


def test_administrators_are_of_the_group_or_named_or_have_the_servers_own_token(service: Service) -> None:
    job = submit(service, "annas")
    tokens = ("operators", "evas", USER, "bens")
    assert [ask(service, token, "GET", f"/jobs/{job}").status for token in tokens] == [200, 200, 200, 404]


def test_an_administrator_who_names_a_job_of_others_is_told_their_ids(service: Service) -> None:
    """What came by kubectl is its namespace's: whoever had started the server was told that there is no such job."""
    job = submit(service, "annas", name="left")
    words = f"you have no job 'left', but other users have; name the job by id: {job} of {service.store.job(job).owner}"
    assert ask(service, USER, "GET", "/jobs/left").error == (404, "NotFound", words)
    assert ask(service, "operators", "POST", "/jobs/left/cancel").error == (404, "NotFound", words)
    assert ask(service, "bens", "GET", "/jobs/left").error[2].startswith("there is no job 'left'")


@pytest.mark.parametrize("token", ["nobodys", "imposters", "x" * 20_000])
def test_whom_the_cluster_does_not_know_is_refused(service: Service, token: str) -> None:
    assert ask(service, token, "GET", "/jobs").error == (401, "Denied", UNKNOWN)


def test_who_is_called_like_a_namespace_has_its_jobs_only_if_they_could_create_them(
    service: Service, cluster: Cluster
) -> None:
    """What kubectl makes in a namespace counts as of a user of its name: they saw and cancelled all of it."""
    cluster.people |= {"closeds": Identity("closed"), "opens": Identity("open"), "nobodys": Identity("elsewhere")}
    words = (
        "your name, 'closed', is that of a namespace in which you may not create pods, and the jobs that kubectl makes "
        "there would be yours; ask an administrator for another name, or for that permission"
    )
    assert ask(service, "closeds", "GET", "/jobs").error == (403, "Denied", words)
    assert [ask(service, token, "GET", "/jobs").status for token in ("opens", "nobodys")] == [200, 200]


def test_only_a_token_that_could_be_the_clusters_is_shown_to_it(service: Service, cluster: Cluster) -> None:
    expected = {None: 401, USER: 200, WORKER: 403, "swj.1.1.9.x": 403, "x" * 20_000: 401}
    assert {token: ask(service, token, "GET", "/jobs").status for token in expected} == expected
    assert ask(service, "annas", "GET", "/workers/nowhere").status == 401
    assert ask(service, "annas", "GET", "/health").status == 200
    service.ask("GET", "/jobs", token="annas", host="evil.example")
    service.ask("GET", "/jobs", token="annas", headers={"Origin": "http://evil.example"})
    service.ask("GET", "/d/annas/freegpu", token="annas", prefix="")
    assert cluster.asked == []


def test_the_cluster_is_asked_once_a_minute(service: Service, cluster: Cluster, clock: Clock) -> None:
    for _ in range(3):
        assert ask(service, "annas", "GET", "/jobs").status == 200
        assert ask(service, "nobodys", "GET", "/jobs").status == 401
    assert cluster.asked == ["annas", "nobodys"]
    clock.now += UNKNOWN_REMEMBERED_S
    ask(service, "nobodys", "GET", "/jobs")
    clock.now += REMEMBERED_S - UNKNOWN_REMEMBERED_S
    del cluster.people["annas"]
    assert ask(service, "annas", "GET", "/jobs").status == 401
    assert cluster.asked == ["annas", "nobodys", "nobodys", "annas"]


@pytest.mark.parametrize("problem", [Unavailable("the API server is away"), Denied("our role lacks a verb")])
def test_a_cluster_that_cannot_be_asked_is_no_reason_to_let_anybody_in(
    service: Service, cluster: Cluster, problem: Exception
) -> None:
    cluster.problem = problem
    assert ask(service, "annas", "GET", "/jobs").error == (
        503,
        "Unavailable",
        "the cluster cannot be asked whose token this is; try again, or see server.log",
    )
    assert ask(service, USER, "GET", "/jobs").status == 200
    cluster.problem = None
    assert ask(service, "annas", "GET", "/jobs").status == 200


def test_a_job_needs_the_right_to_create_what_it_becomes(service: Service, cluster: Cluster) -> None:
    submit(service, "annas")
    assert cluster.created == [(ANNA, ObjectKind("v1", "Pod", "ml"))]
    before = job_ids(service)
    assert ask(service, "annas", "POST", "/jobs", submission("elsewhere")).error == (
        403,
        "Denied",
        (
            "'anna' may not create a Pod (v1) in namespace 'closed', and Swell creates only what you could "
            "create yourself; ask for that permission, or name another namespace"
        ),
    )
    assert job_ids(service) == before


@pytest.mark.parametrize(("before", "act"), [("hold", "release"), ("cancel", "requeue")])
def test_whoever_lost_the_right_to_create_a_pod_has_none_made_again(
    service: Service, cluster: Cluster, before: str, act: str
) -> None:
    """Swell made it with its own rights, for a user whose own had been taken away after the job was submitted."""
    job = submit(service, "annas")
    assert ask(service, "annas", "POST", f"/jobs/{job}/{before}").status == 200
    cluster.dismissed.add(ANNA.user)
    try:
        status, kind, said = ask(service, "annas", "POST", f"/jobs/{job}/{act}").error
        assert (status, kind, said.partition(",")[0]) == (
            403,
            "Denied",
            "'anna' may not create a Pod (v1) in namespace 'ml'",
        )
        assert ask(service, "annas", "POST", f"/jobs/{job}/cancel").status == 200
    finally:
        cluster.dismissed.clear()
    if act == "requeue":
        assert ask(service, "annas", "POST", f"/jobs/{job}/requeue").status == 200
        assert ask(service, "annas", "POST", f"/jobs/{job}/cancel").status == 200


def test_the_groups_of_who_submits_are_kept_and_are_those_of_the_last_requeue(
    service: Service, cluster: Cluster, clock: Clock
) -> None:
    """Before each attempt their rights are asked, and rights come with groups."""
    job = submit(service, "annas")
    assert service.store.job(job).submitter == ANNA
    assert ask(service, "annas", "POST", f"/jobs/{job}/cancel").status == 200
    moved = replace(ANNA, groups=("hpc",))
    cluster.people["annas"] = moved
    clock.now += REMEMBERED_S
    assert ask(service, "annas", "POST", f"/jobs/{job}/requeue").status == 200
    assert service.store.job(job).submitter == moved
    assert ask(service, "operators", "POST", f"/jobs/{job}/hold").status == 200
    assert ask(service, "operators", "POST", f"/jobs/{job}/release").status == 200
    assert service.store.job(job).submitter == moved, "somebody else's rights are not those of its owner"
    assert ask(service, "annas", "POST", f"/jobs/{job}/cancel").status == 200


@pytest.mark.parametrize("body", [submission("elsewhere"), submission("job", priority=10)])
def test_a_dry_run_is_refused_what_its_submission_would_be_and_in_the_same_words(
    service: Service, cluster: Cluster, body: dict[str, Any]
) -> None:
    """It was shown to the API server in Swell's own name, whoever had sent it."""
    refused = ask(service, "annas", "POST", "/jobs", body)
    dry = ask(service, "annas", "POST", "/jobs", {**body, "dry_run": True})
    assert refused.status in (403, 422)
    assert dry.error == refused.error


def test_the_servers_own_token_creates_what_the_server_may(service: Service, cluster: Cluster) -> None:
    submit(service, USER, "elsewhere")
    assert cluster.created == []


def test_through_a_door_a_user_has_their_own_rights_and_no_groups_but_those_in_the_name(
    service: Service, cluster: Cluster
) -> None:
    address = ask(service, "bens", "POST", "/doors/address", {"name": "genai"}).json["address"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old"}}
    pod |= {"spec": {"containers": [{"name": "a", "image": "busybox", "command": ["true"]}]}}
    path = address.removeprefix(f"http://{service.host}")
    told = service.ask("POST", f"{path}/deploy", pod, token=None, prefix="")
    assert told.status == 201, told.data
    assert [job.owner for job in service.store.active_named("old")] == [BEN.user]
    groups = ("system:serviceaccounts", "system:serviceaccounts:ml", "system:authenticated")
    assert [identity for identity, _ in cluster.created] == [Identity(BEN.user, groups)]


def test_a_priority_above_the_limit_is_for_administrators(service: Service) -> None:
    status, _, said = ask(service, "annas", "POST", "/jobs", submission("urgent", priority=10)).error
    assert (status, said[:43]) == (422, "priority 10 is above the limit of anna, 9; ")
    assert submit(service, "operators", priority=10)


def test_a_door_may_act_for_anybody_of_the_cluster_if_the_servers_own_token_opens_it(service: Service) -> None:
    asked = {"name": "genai", "port": 0, "user": BEN.user}
    said = (
        f"a door that acts as {BEN.user!r} lets everyone act as that user, so only who has the server's own token may "
        "open it; without --as, it acts as you"
    )
    assert ask(service, "operators", "POST", "/doors", asked).error == (403, "Denied", said)
    opened = ask(service, USER, "POST", "/doors", asked).json
    assert opened["owner"] == BEN.user
    assert ask(service, USER, "DELETE", f"/doors/{opened['port']}").status == 204


def test_a_quota_is_told_to_who_could_use_it(service: Service) -> None:
    address = ask(service, "bens", "POST", "/doors/address", {"name": "genai"}).json["address"]
    bens = Foreign(address)
    assert bens.ask("GET", "/resourcequota/ml") == (200, {"limit": "8", "used": "5"})
    assert bens.ask("GET", "/resourcequota/free") == (200, {"limit": "0", "used": "0"}), "no quota, and no node"
    said = (
        f"{BEN.user!r} may not create a Pod (v1) in namespace 'closed', so its quota is not shown; ask "
        "for that permission"
    )
    assert bens.ask("GET", "/resourcequota/closed") == (403, {"error": said})


def test_many_new_tokens_of_one_address_are_reviewed_a_few_at_a_time(service: Service, cluster: Cluster) -> None:
    """Whoever invents tokens must not keep every thread of the server busy."""
    together = threading.Barrier(REVIEWS_OF_EACH)  # each waits until so many are under way
    under_way, most = [0], [0]
    lock = threading.Lock()

    def count(by: int) -> None:
        with lock:
            under_way[0] += by
            most[0] = max(most[0], under_way[0])

    def who(_: str) -> None:
        count(+1)
        together.wait(WAIT_S)
        count(-1)

    with patched(cluster, who):
        asking = [threading.Thread(target=ask, args=(service, f"new-{n}", "GET", "/jobs")) for n in range(40)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert most == [REVIEWS_OF_EACH]


@contextlib.contextmanager
def patched(cluster: Cluster, who: Callable[[str], Identity | None]) -> Iterator[None]:
    cluster.who = who  # type: ignore[method-assign]
    try:
        yield
    finally:
        del cluster.who


# -- the cluster itself --------------------------------------------------------------------------------------------


def test_objects_that_cannot_be_read_are_named_to_administrators_and_counted_for_others(
    service: Service, cluster: Cluster
) -> None:
    cluster.odd = [f"Job ml/j{number} cannot be read" for number in range(21)]
    cluster.said = "the credential was revoked"
    told = {"trouble": "the credential was revoked", "unreadable": 21}
    try:
        answers = {token: ask(service, token, "GET", "/server").json["cluster"] for token in ("annas", "operators")}
    finally:
        cluster.odd, cluster.said = [], None
    assert answers == {
        "annas": {**told, "unreadable_objects": []},
        "operators": {**told, "unreadable_objects": [f"Job ml/j{number} cannot be read" for number in range(20)]},
    }


# -- what came by kubectl ------------------------------------------------------------------------------------------


def applied(service: Service, name: str, user: str, namespace: str) -> tuple[int, dict[str, Any]]:
    """A job that came by kubectl, and has ended; and its object."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata}
    spec = service.store.job(submit(service, "annas", name)).spec
    new = {name: NewJob(spec, user, {}, None, reference)}
    [record] = service.controller.take_in(new, lambda _: None, origin="kubectl").result(10)
    assert record is not None
    ask(service, USER, "POST", f"/jobs/{record.id}/cancel")
    service.until(record.id, "cancelled")
    return record.id, reference


def test_with_its_object_a_job_that_came_by_kubectl_is_deleted_for_who_could_delete_that(
    service: Service, cluster: Cluster
) -> None:
    """`genai-manager delete` left the PyTorchJob behind."""
    job, reference = applied(service, "tuned", ANNA.user, "ml")
    assert ask(service, "annas", "DELETE", f"/jobs/{job}?with_object=true").status == 204
    assert cluster.deleted == [reference]


def test_without_it_the_object_stays_and_one_that_swell_made_goes_with_its_job_anyway(
    service: Service, cluster: Cluster
) -> None:
    job, _ = applied(service, "kept", ANNA.user, "ml")
    assert ask(service, "annas", "DELETE", f"/jobs/{job}").status == 204
    own = submit(service, "annas", "own")
    ask(service, "annas", "POST", f"/jobs/{own}/cancel")
    service.until(own, "cancelled")
    assert ask(service, "annas", "DELETE", f"/jobs/{own}?with_object=true").status == 204
    assert cluster.deleted == []


@pytest.mark.parametrize(("user", "token", "namespace"), [(ANNA.user, "annas", "closed"), (BEN.user, "bens", "ml")])
def test_who_could_not_delete_it_with_kubectl_cannot_here(
    service: Service, cluster: Cluster, user: str, token: str, namespace: str
) -> None:
    job, _ = applied(service, f"shut-{token}", user, namespace)
    said = (
        f"{user!r} may not delete a PyTorchJob (kubeflow.org/v1) in namespace {namespace!r}, and Swell "
        "deletes only what you could delete yourself"
    )
    assert ask(service, token, "DELETE", f"/jobs/{job}?with_object=true").error == (403, "Denied", said)
    assert (cluster.deleted, ask(service, token, "GET", f"/jobs/{job}").status) == ([], 200)


def test_what_has_ended_is_replaced_for_who_may_delete_it_and_not_by_a_dry_run(
    service: Service, cluster: Cluster
) -> None:
    metadata = {"name": "again", "namespace": "ml", "uid": "old"}
    cluster.ended = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}]
    body = {**submission("again", gpus=99), "replaces": True}
    said = (
        "'ben' may not delete a Job (batch/v1) in namespace 'ml', and Swell deletes only what you could delete yourself"
    )
    before = job_ids(service)
    refused = ask(service, "bens", "POST", "/jobs", body)
    assert refused.error == (403, "Denied", said.replace("ben", BEN.user, 1))
    assert ask(service, "annas", "POST", "/jobs", {**body, "dry_run": True}).status == 200
    assert ask(service, "annas", "POST", "/jobs", {**body, "replaces": False}).status == 201
    assert (cluster.deleted, len(job_ids(service))) == ([], len(before) + 1)
    assert ask(service, "annas", "POST", "/jobs", body).status == 201
    assert cluster.deleted == cluster.ended
    cluster.ended = []
