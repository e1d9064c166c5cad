"""What a cluster refuses is said in its own words with what to do, and nothing of it is left anywhere."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api import Object
from cluster.cluster import Cluster
from cluster.identity import Login, expired_token
from cluster.jobs import ON_KWOK, job, jobset, pod, pytorchjob
from cluster.starting import module_cluster
from server import Result

from .acting import PATIENCE_S, Stage, acting
from .chart import ACCOUNT, NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ML = "ml"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/swell-swell-run"
MADE = "pods,services,secrets,jobs.batch"
TAKE = Callable[[str, str], None]

cluster = module_cluster(kwok=2)


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with acting(cluster, tmp_path_factory.mktemp("server"), NAMESPACE, ML) as made:
        yield made


@pytest.fixture
def nothing_changes(stage: Stage) -> Iterator[None]:
    """Neither in the cluster nor in Swell."""
    before = made(stage), stage.server.settled()
    yield
    assert (made(stage), stage.server.settled()) == before


@pytest.fixture
def take_right(stage: Stage) -> Iterator[TAKE]:
    """From Swell's role, until the test is over."""
    role = stage.cluster.api.get(ROLE)

    def take(verb: str, resource: str) -> None:
        rules = [rule for rule in role["rules"] if resource not in rule["resources"]]
        left = [rule for rule in role["rules"] if resource in rule["resources"] and rule["verbs"] != [verb]]
        rules += [{**rule, "verbs": [one for one in rule["verbs"] if one != verb]} for rule in left]
        stage.cluster.api.patch(ROLE, {"rules": rules})

    yield take
    stage.cluster.api.patch(ROLE, {"rules": role["rules"]})


def made(stage: Stage) -> list[tuple[str, str, str]]:
    """What is in the cluster of the kinds that Swell makes."""
    found = json.loads(stage.cluster.api.kubectl("get", MADE, "-A", "-o", "json"))["items"]
    return sorted((one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in found)


def submit(stage: Stage, *documents: Object, **variables: str) -> Result:
    for document in documents:
        document["metadata"].setdefault("namespace", ML)
    return stage.server.swell("submit", "-f", "-", stdin=yaml.safe_dump_all(documents), env=variables)


def said(text: str, code: int = 2) -> Result:
    return Result(code, "", f"swell: -: {text}\n")


def stale(stage: Stage, name: str, namespace: str) -> str:
    account = stage.cluster.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
    return expired_token(stage.cluster.control_plane.certificates.account_key, account)


def end(token: str) -> datetime:
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return datetime.fromtimestamp(claims["exp"], UTC)


def over(login: Login) -> str:
    """What is said of Swell's own credential."""
    return (
        f"the API server does not accept the credential of user 'somebody' of {login.kubeconfig}: "
        f"it ended at {end(login.token):%Y-%m-%d %H:%M} UTC; log in again and renew it"
    )


# -- refused when it is submitted ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_changes")
def test_an_object_that_kubernetes_refuses_takes_those_beside_it_along(stage: Stage) -> None:
    bad = pod("bad", "true", on=ON_KWOK)
    bad["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    assert submit(stage, pod("good", "true", on=ON_KWOK), bad) == said(
        "create pods 'bad' in namespace 'ml': Pod \"bad\" is invalid: "
        'spec.containers[0].volumeMounts[0].name: Not found: "data"'
    )


@pytest.mark.usefixtures("nothing_changes")
@pytest.mark.parametrize(
    ("document", "needs"),
    [
        (
            jobset("set", "true", count=2, on=ON_KWOK),
            "JobSet needs the JobSet controller: the API server knows no JobSet of jobset.x-k8s.io/v1alpha2",
        ),
        (
            pytorchjob("train", "true", "true", workers=1, on=ON_KWOK),
            "PyTorchJob needs the Kubeflow training operator: the API server knows no PyTorchJob of kubeflow.org/v1",
        ),
    ],
    ids=["JobSet", "PyTorchJob"],
)
def test_a_kind_that_is_not_installed_is_said_to_be_with_whose_it_is(
    stage: Stage, document: Object, needs: str
) -> None:
    group = document["apiVersion"].partition("/")[0]
    assert submit(stage, document) == said(
        f"{needs}; install it (`kubectl api-resources --api-group={group}` lists what is there)"
    )


@pytest.mark.usefixtures("nothing_changes")
def test_a_verb_that_swells_role_lacks_is_named(stage: Stage, take_right: TAKE) -> None:
    take_right("create", "jobs")
    assert submit(stage, job("indexed", "true", count=2, on=ON_KWOK)) == said(
        "Swell's role lacks the verb 'create' on jobs.batch of API group \"batch\" in namespace 'ml': jobs.batch is "
        f'forbidden: User "{ACCOUNT}" cannot create resource "jobs" in API group "batch" in the namespace "ml"; '
        "grant it"
    )


@pytest.mark.usefixtures("nothing_changes")
def test_a_namespace_that_swell_was_not_given_is_refused(stage: Stage) -> None:
    document = pod("lost", "true", on=ON_KWOK)
    document["metadata"]["namespace"] = "elsewhere"
    assert submit(stage, document) == said(
        "Swell's role lacks the verb 'create' on pods in namespace 'elsewhere': pods is forbidden: "
        f'User "{ACCOUNT}" cannot create resource "pods" in API group "" in the namespace "elsewhere"; grant it'
    )


@pytest.mark.usefixtures("nothing_changes")
def test_a_users_token_that_has_expired_is_said_to_have(stage: Stage) -> None:
    token = stale(stage, "default", ML)
    done = submit(stage, pod("single", "true"), SWELL_STATE="", SWELL_SERVER=stage.url, SWELL_API_TOKEN=token)
    assert done == said(
        f"{stage.url} refuses the token in SWELL_API_TOKEN, which expired at {end(token):%Y-%m-%d %H:%M:%S} UTC: "
        "the cluster does not know whose this token is; set another token: export SWELL_API_TOKEN=$(kubectl "
        "create token NAME -n NAMESPACE)"
    )


@pytest.mark.usefixtures("nothing_changes")
def test_swells_own_credential_that_has_expired_is_said_to_have(stage: Stage) -> None:
    fresh = stage.login.token
    stage.login.use(stale(stage, "swell", NAMESPACE))
    try:
        done, why = submit(stage, pod("single", "true", on=ON_KWOK)), over(stage.login)
    finally:
        stage.login.use(fresh)
    assert done == said(f"create pods 'single' in namespace 'ml': {why}", code=1)


def test_a_server_with_an_expired_credential_says_so_at_once_and_does_not_start(stage: Stage, tmp_path: Path) -> None:
    login = Login(tmp_path, stage.cluster.kubeconfig, NAMESPACE)
    login.use(stale(stage, "swell", NAMESPACE))
    words = ("--state", str(tmp_path / "state"), "--engine", "kubernetes", "--kubeconfig", str(login.kubeconfig))
    began = time.monotonic()
    done = stage.server.swell("up", "-d", *words)
    why = f"the server did not start: the cluster cannot be watched: list nodes: {over(login)}"
    assert done == Result(1, "", f"swell: {why}; these options are not stored\n")
    assert time.monotonic() - began < 20  # it would wait half a minute for a server that may still answer


def test_a_pod_by_kubectl_where_swell_may_bind_none_waits_outside_and_takes_no_room(stage: Stage) -> None:
    """It was planned, held its room, and could not be bound, again and again."""
    api = stage.cluster.api
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "not-given"}})
    theirs = {"on": ON_KWOK, "schedulerName": "swell"}
    api.apply(pod("outside", "true", gpus=8, **theirs), namespace="not-given")
    api.apply(pod("inside", "true", annotations={"sim/run-for": "1s"}, **theirs), namespace=ML)
    api.until(f"/api/v1/namespaces/{ML}/pods", lambda pods: pods["inside"]["status"].get("phase") == "Succeeded")
    outside = api.get("/api/v1/namespaces/not-given/pods/outside")
    assert "nodeName" not in outside["spec"]
    assert "annotations" not in outside["metadata"]  # those of a job of ours
    assert "Swell may not bind pods in namespace 'not-given'" in stage.server.state.server_log.read_text()
    for namespace, name in (("not-given", "outside"), (ML, "inside")):
        api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")


# -- refused when it begins, or never -----------------------------------------------------------------------------


def test_a_pod_that_may_not_be_bound_is_taken_away_again_and_the_verb_is_named(stage: Stage, take_right: TAKE) -> None:
    before = made(stage)
    take_right("create", "pods/binding")
    one = submit(stage, pod("unbound", "true", on=ON_KWOK)).id
    waiting = stage.server.until_true(one, lambda found: reason(found) == "WaitingToRetry", patience_s=PATIENCE_S)
    assert waiting["reason"]["evidence"]["problem"] == (
        "Swell's role lacks the verb 'create' on pods/binding in namespace 'ml': pods \"unbound\" is forbidden: "
        f'User "{ACCOUNT}" cannot create resource "pods/binding" in API group "" in the namespace "ml"; grant it'
    )
    forget(stage, one)
    assert made(stage) == before


def test_a_gang_that_is_larger_than_the_cluster_waits_with_its_reason_and_makes_nothing(stage: Stage) -> None:
    before = made(stage)
    gang = job("wide", "true", count=3, on=ON_KWOK, gpus=8)
    gang["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "wide"}
    one = submit(stage, gang).id
    stage.server.until_true(one, lambda found: reason(found) == "CannotRunHere", patience_s=PATIENCE_S)
    assert stage.said("why", str(one)) == (
        f"job {one} (wide) is queued: CannotRunHere\n"
        "  it wants 3 tasks of 0.01 CPUs, 64 MiB, 8 GPUs, all at once, but only 2 tasks fit on all nodes; "
        "waiting will not help\n"
        "  next: cancel it and submit it again with 2 pods or less, or add a node\n"
    )
    assert made(stage) == before
    forget(stage, one)
    assert made(stage) == before


def reason(found: Any) -> str | None:
    return None if found["reason"] is None else str(found["reason"]["code"])


def forget(stage: Stage, one: int) -> None:
    """What it has made is gone then."""
    stage.said("cancel", str(one))
    stage.until(one, "cancelled")
    stage.said("delete", str(one))
