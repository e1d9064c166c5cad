"""How a step is carried out. With real objects: test_engine.py, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.attempt.api_calls import ApiCalls
from swell.engines.kubernetes.attempt.steps import CreateObject, ResizeObject, ResumeObject, SuspendObject
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, Wanted
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.credentials import Headers
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import Resource
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.objects import JobPlaces
from swell.errors import Conflict, NotFound, Rejected

from .apiserver import ApiServer
from .pieces import make_object, make_seen, make_wanted

PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
JOBS = Resource("batch", "v1", "jobs", "Job")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")


def no_quotas(_: Selection) -> Any:
    return SimpleNamespace(items=())


def api_calls(
    port: ApiClient, manifest: dict[str, Any], on_behalf: Callable[[Wanted], Headers] = lambda _: ()
) -> ApiCalls:
    cluster: Any = SimpleNamespace(
        resources={"PyTorchJob": PYTORCHJOBS, "Job": JOBS, "JobSet": JOBSETS},
        served=lambda kind: (KINDS[kind], JOBS),
    )
    return ApiCalls(
        port,
        cluster,
        lambda _: manifest,
        store="s",
        places=JobPlaces("team", "home"),
        is_active=lambda _: True,
        runtime_class=lambda: None,
        on_behalf=on_behalf,
    )


def test_nothing_is_made_for_who_may_not_make_it_any_more(port: ApiClient) -> None:
    """Their rights were asked at submission alone; each attempt after made it with Swell's own."""
    asked: list[str] = []

    def refuse(wanted: Wanted) -> Headers:
        asked.append(wanted.name)
        raise Rejected("'anna' may not create a Job any more")

    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    calls = api_calls(port, manifest, refuse)
    for step in (CreateObject(), CreateObject(rank=1), ResumeObject(), ResizeObject()):
        with pytest.raises(Rejected, match="may not create a Job any more"):
            calls.do(step, make_wanted(), make_seen(None), AttemptMemory())
    assert len(asked) == 4
    with pytest.raises(NotFound):  # of what is there already nothing is made
        calls.do(SuspendObject(), make_wanted(is_stopping=True), make_seen(make_object()), AttemptMemory())


def test_an_object_that_is_gone_is_not_believed_to_be_there(port: ApiClient) -> None:
    """It came and went while its watch was away. Nothing but our own answer spoke of it, and that was believed for
    ever: an attempt that was to stop tried to suspend it again and again, and never ended."""
    memory = AttemptMemory(fresh=make_object())
    with pytest.raises(NotFound):
        api_calls(port, {}).do(SuspendObject(), make_wanted(is_stopping=True), make_seen(memory.fresh), memory)
    assert memory.fresh is None


def test_what_came_by_kubectl_and_cannot_be_begun_again_is_not_deleted() -> None:
    """A gang that was stopped when one of its ranks had succeeded: what has succeeded in a Job is not done again."""
    spec = {"completions": 2, "parallelism": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}
    live = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "uid": "object"},
        "spec": spec,
        "status": {"succeeded": 1},
    }
    calls: list[str] = []
    port: Any = SimpleNamespace(
        get=lambda *_: live,
        list=no_quotas,
        patch=lambda *_, **__: calls.append("patch"),
        delete=lambda *_, **__: calls.append("delete"),
    )
    found = make_object("Job", is_suspended=True)
    with pytest.raises(Conflict) as refusal:
        api_calls(port, live).do(ResizeObject(), make_wanted(), make_seen(found), AttemptMemory(fresh=found))
    assert calls == []
    assert str(refusal.value) == (
        "Job team/train cannot be started as it is: some of its pods have succeeded, or its size would have to change, "
        "and Swell does not delete objects created with kubectl; delete it with kubectl and create it again"
    )


def test_an_object_that_somebody_else_has_just_suspended_is_not_suspended_by_us() -> None:
    """Its pods were told to end by that, said that they were ready to stop, and our stop took it for its own doing:
    the job was begun again at once."""
    live = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team", "uid": "object", "resourceVersion": "2"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {}},
    }
    patches: list[Any] = []
    port: Any = SimpleNamespace(get=lambda *_: live, patch=lambda *words: patches.append(words[2]) or live)
    stopping, memory = make_wanted(is_stopping=True), AttemptMemory()
    api_calls(port, {}).do(SuspendObject(), stopping, make_seen(make_object()), memory)
    assert (patches, memory.fresh and memory.fresh.is_suspended) == ([], True)
    live["spec"]["runPolicy"]["suspend"] = False  # type: ignore[index]
    api_calls(port, {}).do(SuspendObject(), stopping, make_seen(make_object()), memory)
    mark = {"uid": "object", "resourceVersion": "2", "annotations": {"swell.dev/suspended": "7.1"}}
    assert patches == [{"metadata": mark, "spec": {"runPolicy": {"suspend": True}}}]


def test_an_object_says_of_itself_whether_it_waits_for_us() -> None:
    """Of one that we had resumed and somebody had suspended before its pods were seen to run, nothing else tells."""
    manifest: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "pytorch"}]}}}}},
    }
    patches: list[Any] = []

    def create(_: object, document: dict[str, Any], __: str, **___: object) -> dict[str, Any]:
        return {**document, "metadata": {**document["metadata"], "uid": "object", "resourceVersion": "1"}}

    def patch(_: object, __: str, body: dict[str, Any], ___: str) -> dict[str, Any]:
        patches.append(body)
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "object", "resourceVersion": "2"}}

    memory, wanted = AttemptMemory(), make_wanted(tasks=1)
    port: Any = SimpleNamespace(create=create, list=no_quotas, patch=patch)
    worker = api_calls(port, manifest)
    worker.do(CreateObject(), wanted, make_seen(None), memory)
    made = memory.fresh
    assert made is not None
    assert (made.is_suspended, made.suspended_in) == (True, wanted.attempt)
    worker.do(ResumeObject(), wanted, make_seen(made), memory)
    resumed = {"uid": "object", "annotations": {"swell.dev/suspended": None}}
    assert patches == [{"metadata": resumed, "spec": {"runPolicy": {"suspend": False}}}]


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_a_job_is_resumed_when_its_controller_has_counted_what_its_suspension_has_ended(kind: str) -> None:
    """One that was released at once had failed: what its suspension had ended was counted after it was resumed."""
    job = {"completions": 2, "parallelism": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}
    spec = job if kind == "Job" else {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}]}
    live: dict[str, Any] = {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "team", "uid": "object", "resourceVersion": "2"},
        "spec": spec,
        "status": {"uncountedTerminatedPods": {"failed": ["uid"]}},
    }
    patches: list[Any] = []
    port: Any = SimpleNamespace(
        get=lambda *_: live,
        list=lambda _: SimpleNamespace(items=[live]),  # of a JobSet, as if its Job
        patch=lambda *words: patches.append(words[2]) or live,
    )
    found = make_object(kind, is_suspended=True)
    with pytest.raises(Conflict, match=r"Kubernetes has not counted the finished pods of .* yet"):
        api_calls(port, live).do(ResizeObject(), make_wanted(gpus=0), make_seen(found), AttemptMemory(fresh=found))
    assert patches == []
    live["status"] = {"uncountedTerminatedPods": {}, "failed": 2}
    api_calls(port, live).do(ResizeObject(), make_wanted(gpus=0), make_seen(found), AttemptMemory(fresh=found))
    assert [patch["spec"]["suspend"] for patch in patches] == [False]


def test_jobs_of_a_jobset_that_have_done_some_of_it_are_made_anew_by_their_set() -> None:
    """They would not make a pod again that has succeeded, and a gang needs all of its ranks."""
    spec = {"completions": 2, "parallelism": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}
    live: dict[str, Any] = {
        "apiVersion": KINDS["JobSet"].api_version,
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "team", "uid": "object", "resourceVersion": "2"},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": spec}}]},
    }
    metadata = {"name": "train-workers-0", "namespace": "team", "uid": "job"}
    jobs: list[dict[str, Any]] = [{"metadata": metadata, "status": {"succeeded": 1, "failed": 1}}]
    patches: list[Any] = []
    deleted: list[tuple[str, str]] = []
    port: Any = SimpleNamespace(
        get=lambda *_: live,
        list=lambda _: SimpleNamespace(items=jobs),
        patch=lambda *words: patches.append(words[2]) or live,
        delete=lambda _, name, __, *, propagation, uid: deleted.append((name, uid)),
    )
    found = make_object("JobSet", is_suspended=True)
    for change in ({}, {"deletionTimestamp": "2026-11-17T00:00:00Z"}):
        jobs[0]["metadata"] = {**metadata, **change}
        with pytest.raises(Conflict, match="recreating Jobs of JobSet team/train that have partly completed"):
            api_calls(port, live).do(ResizeObject(), make_wanted(gpus=0), make_seen(found), AttemptMemory(fresh=found))
    assert (deleted, patches) == ([("train-workers-0", "job")], [])
    jobs[0] = {"metadata": {**metadata, "uid": "anew"}, "status": {}}
    api_calls(port, live).do(ResizeObject(), make_wanted(gpus=0), make_seen(found), AttemptMemory(fresh=found))
    assert [patch["spec"]["suspend"] for patch in patches] == [False]


# -- names that somebody has already -----------------------------------------------------------------------------------

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": {"containers": [{"name": "main"}]}}
NAMED_BY_US = {**POD, "metadata": {"name": "train", "generateName": "train-"}}


def others(server: ApiServer, job: str | None, store: str = "s") -> None:
    labels = {} if job is None else {"swell.dev/job": job, "swell.dev/store": store}
    server.storage.create("pods", ("team", "train"), {**POD, "metadata": {"labels": labels}})


def create(port: ApiClient, manifest: dict[str, Any]) -> None:
    api_calls(port, manifest).do(CreateObject(0), make_wanted(tasks=1), make_seen(None), AttemptMemory())


def names(server: ApiServer) -> list[str]:
    return [name for _, name in server.storage.state("pods")]


@pytest.mark.parametrize(
    ("job", "store", "what"),
    [(None, "s", "kubectl delete pod train -n team"), ("8", "s", "swell cancel 8"), ("8", "another", "kubectl delete")],
)
def test_an_object_of_the_users_is_never_renamed(
    job: str | None, store: str, what: str, server: ApiServer, port: ApiClient
) -> None:
    """What is in it may go by its name: MASTER_ADDR of the second JobSet named the first one's pod."""
    others(server, job, store)
    with pytest.raises(AlreadyExists, match=f'pods "train" already exists in namespace "team".* {what}'):
        create(port, POD)
    assert names(server) == ["train"]


def test_what_was_made_for_this_job_before_is_found_again(server: ApiServer, port: ApiClient) -> None:
    others(server, "7")
    create(port, POD)
    assert names(server) == ["train"]


def test_a_name_that_we_chose_is_changed(server: ApiServer, port: ApiClient) -> None:
    others(server, None)
    create(port, NAMED_BY_US)
    assert names(server) == ["train", "train-7"]


def test_nothing_of_a_job_is_made_where_the_servers_secrets_are(server: ApiServer, port: ApiClient) -> None:
    """Also not of one that was accepted by a server before this one."""
    with pytest.raises(Rejected, match="jobs are not made in namespace 'home', which is Swell's own"):
        create(port, {**POD, "metadata": {"name": "train", "namespace": "home"}})
    assert names(server) == []
