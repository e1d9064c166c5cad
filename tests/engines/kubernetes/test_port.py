"""The port against an API server on loopback: what goes over the wire, and what comes of faults."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from swell.engines.kubernetes import Access, ApiClient, Resource
from swell.engines.kubernetes.client.api_client import PatchKind, Selection
from swell.engines.kubernetes.client.connection import Abort
from swell.engines.kubernetes.client.credentials import Credential, Fixed
from swell.engines.kubernetes.client.failures import AlreadyExists, Busy, Expired, Unauthorized
from swell.engines.kubernetes.client.resources import PODS, NotServed
from swell.errors import Conflict, Denied, NotFound, Rejected, Unavailable

from .apiserver import ApiServer
from .conftest import access_to
from .faults import Fault, Scripted

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")


def pod(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"n": 1}}


def ask(server: ApiServer) -> tuple[str, str, object]:
    """The last thing that was asked."""
    request = server.seen[-1]
    return request.method, request.path, request.document


# -- verbs ---------------------------------------------------------------------------------------------------------


def test_an_object_is_created_read_changed_and_deleted(server: ApiServer, port: ApiClient) -> None:
    made = port.create(PODS, pod("p"), "ml")
    assert port.get(PODS, "p", "ml") == made
    patched = port.patch(PODS, "p", {"spec": {"n": 2}}, "ml")
    assert (patched["spec"], patched["metadata"]["uid"]) == ({"n": 2}, made["metadata"]["uid"])
    port.delete(PODS, "p", "ml")
    with pytest.raises(NotFound, match='pods "p" not found'):
        port.get(PODS, "p", "ml")


def test_what_exists_already_is_not_created(server: ApiServer, port: ApiClient) -> None:
    port.create(PODS, pod("p"), "ml")
    with pytest.raises(AlreadyExists, match='pods "p" already exists'):
        port.create(PODS, pod("p"), "ml")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (PatchKind.MERGE, {"spec": {"n": 5}}),
        (PatchKind.STRATEGIC, {"spec": {"n": 5}}),
        (PatchKind.APPLY, {**pod("p"), "spec": {"n": 5}}),
    ],
)
def test_a_patch_says_of_which_kind_it_is(server: ApiServer, port: ApiClient, kind: PatchKind, body: object) -> None:
    port.create(PODS, pod("p"), "ml")
    assert port.patch(PODS, "p", body, "ml", kind=kind)["spec"] == {"n": 5}
    assert server.seen[-1].headers["content-type"] == kind.value


def test_server_side_apply_names_its_manager(server: ApiServer, port: ApiClient) -> None:
    port.patch(PODS, "p", pod("p"), "ml", kind=PatchKind.APPLY, manager="swell", force=True)
    assert server.seen[-1].query == {"fieldManager": "swell", "force": "true"}


def test_a_replacement_of_something_older_is_a_conflict(server: ApiServer, port: ApiClient) -> None:
    lease = port.create(LEASES, {"metadata": {"name": "swell"}, "spec": {"holder": "a"}}, "ml")
    port.replace(LEASES, {**lease, "spec": {"holder": "b"}}, "ml")
    with pytest.raises(Conflict, match="the object has been modified"):
        port.replace(LEASES, {**lease, "spec": {"holder": "c"}}, "ml")


def test_a_deletion_says_how_and_of_which_one(server: ApiServer, port: ApiClient) -> None:
    made = port.create(PODS, pod("p"), "ml")["metadata"]
    with pytest.raises(Conflict, match="Precondition failed"):
        port.delete(PODS, "p", "ml", uid="another")
    port.delete(PODS, "p", "ml", propagation="Foreground", grace_s=0, uid=made["uid"])
    assert ask(server) == (
        "DELETE",
        "/api/v1/namespaces/ml/pods/p",
        {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": made["uid"]},
        },
    )


def test_a_pod_is_bound_once_and_only_the_one_that_was_meant(server: ApiServer, port: ApiClient) -> None:
    uid = port.create(PODS, pod("p"), "ml")["metadata"]["uid"]
    with pytest.raises(Conflict, match="UID in precondition: another"):
        port.bind("p", "ml", "another", "node-1")
    port.bind("p", "ml", uid, "node-1", {"swell.dev/attempt": "1.2"})
    with pytest.raises(Conflict, match='pod p is already assigned to node "node-1"'):
        port.bind("p", "ml", uid, "node-2")
    bound = port.get(PODS, "p", "ml")
    assert bound["spec"] == {"n": 1, "nodeName": "node-1"}
    assert bound["metadata"]["annotations"] == {"swell.dev/attempt": "1.2"}


def test_a_subresource_has_its_own_address(server: ApiServer, port: ApiClient) -> None:
    port.create(PODS, pod("p"), "ml")
    port.patch(PODS, "p", {"status": {"phase": "Running"}}, "ml", "status")
    assert server.seen[-1].path == "/api/v1/namespaces/ml/pods/p/status"
    port.get(PODS, "p", "ml", "scale")
    assert server.seen[-1].path == "/api/v1/namespaces/ml/pods/p/scale"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_be_the_address_of_something_else_is_refused(
    server: ApiServer, port: ApiClient, name: str
) -> None:
    with pytest.raises(Rejected, match="is no name of an object"):
        port.delete(PODS, name, "ml")
    assert server.seen == []


def test_a_name_with_a_slash_stays_one_name(server: ApiServer, port: ApiClient) -> None:
    with pytest.raises(NotFound):
        port.get(PODS, "p/../../secrets", "ml")
    assert server.seen[-1].path == "/api/v1/namespaces/ml/pods/p%2F..%2F..%2Fsecrets"


# -- lists, logs, kinds --------------------------------------------------------------------------------------------


def test_a_list_has_all_pages_of_one_moment_and_says_what_its_items_are(server: ApiServer, port: ApiClient) -> None:
    for number in range(3):
        port.create(PODS, pod(f"p{number}"), "ml")
    pages = port.pages(Selection(PODS, "ml"), limit=2)
    first = next(pages)
    port.create(PODS, pod("p9"), "ml")
    [second] = pages
    names = [item["metadata"]["name"] for page in (first, second) for item in page.items]
    assert (names, first.resource_version == second.resource_version) == (["p0", "p1", "p2"], True)
    assert (first.items[0]["kind"], first.items[0]["apiVersion"]) == ("Pod", "v1")


def test_a_list_that_expires_between_its_pages_is_made_again(server: ApiServer, port: ApiClient) -> None:
    for number in range(600):
        server.storage.create("pods", ("ml", f"p{number:03}"), {})
    server.faults = Scripted(answers=deque([None, Fault.GONE]))
    assert len(port.list(Selection(PODS)).items) == 600
    server.faults = Scripted(answers=deque([Fault.GONE] * 3))
    with pytest.raises(Expired):
        port.list(Selection(PODS))


def test_a_log_is_an_iterator_of_bytes(server: ApiServer, port: ApiClient) -> None:
    server.logs["ml", "p"] = [b"one\n", b"two\xff"]
    with port.log("p", "ml", "main", since="2026-11-16T00:00:00Z", has_timestamps=True) as stream:
        assert b"".join(stream) == b"one\ntwo\xff"
    assert server.seen[-1].query == {
        "container": "main",
        "sinceTime": "2026-11-16T00:00:00Z",
        "timestamps": "true",
    }


def test_the_log_of_a_pod_that_is_on_no_node_yet_is_empty(server: ApiServer, port: ApiClient) -> None:
    port.create(PODS, pod("p"), "ml")
    with port.log("p", "ml") as stream:
        assert list(stream) == []


def test_whoever_follows_a_log_can_be_sent_home(server: ApiServer, port: ApiClient) -> None:
    server.logs["ml", "p"] = [b"one\n"]
    abort, pieces, refused = Abort(), [], []

    def read() -> None:
        with port.log("p", "ml", follow=True, abort=abort) as stream:
            answer = iter(stream)
            pieces.append(next(answer))
            abort.set()
            with pytest.raises(Unavailable) as raised:
                next(answer)
        refused.append(raised.type)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(5)
    assert (thread.is_alive(), pieces, refused) == (False, [b"one\n"], [Unavailable])


def test_kinds_are_looked_up_once(server: ApiServer, port: ApiClient) -> None:
    assert [port.resource("v1", "Node"), port.resource("v1", "Pod"), port.resource("batch/v1", "Job")] == [
        Resource("", "v1", "nodes", "Node", is_namespaced=False),
        PODS,
        Resource("batch", "v1", "jobs", "Job"),
    ]
    assert [request.path for request in server.seen] == ["/api/v1", "/apis/batch/v1"]


def test_a_kind_that_is_not_installed_says_what_is_missing(server: ApiServer, port: ApiClient) -> None:
    with pytest.raises(NotServed) as caught:
        port.resource("kubeflow.org/v1", "PyTorchJob")
    assert str(caught.value) == (
        "PyTorchJob needs the Kubeflow training operator: the API server knows no PyTorchJob of kubeflow.org/v1; "
        "install it (`kubectl api-resources --api-group=kubeflow.org` lists what is there)"
    )
    with pytest.raises(NotServed) as caught:
        port.resource("kubeflow.org/v2beta1", "MPIJob")
    assert str(caught.value) == (
        "MPIJob needs the MPI operator (mpi-operator, kubeflow.org/v2beta1): the API server knows no MPIJob of "
        "kubeflow.org/v2beta1; install it (`kubectl api-resources --api-group=kubeflow.org` lists what is there)"
    )
    with pytest.raises(NotServed, match="knows no Jb of batch/v1; check apiVersion and kind"):
        port.resource("batch/v1", "Jb")


def test_who_somebody_is(server: ApiServer, port: ApiClient) -> None:
    assert port.review_token(server.token) == {"authenticated": True, "user": {"username": "eva"}}
    assert port.review_token("stolen") == {"authenticated": False}


def test_a_missing_verb_is_named(server: ApiServer, port: ApiClient) -> None:
    server.denied["list", "pods"] = 'pods is forbidden: User "u" cannot list resource "pods" in API group ""'
    with pytest.raises(Denied, match="lacks the verb 'list' on pods in namespace 'ml'"):
        port.list(Selection(PODS, "ml"))


# -- faults --------------------------------------------------------------------------------------------------------

LOST = (Fault.DROPPED, Fault.TORN, Fault.NO_HTTP)


@pytest.mark.parametrize("fault", [*LOST, Fault.SERVER_ERROR, Fault.TOO_MANY])
def test_a_question_is_asked_three_times(server: ApiServer, port: ApiClient, fault: Fault) -> None:
    port.create(PODS, pod("p"), "ml")
    server.faults = Scripted(answers=deque([fault] * 2))
    assert port.get(PODS, "p", "ml")["spec"] == {"n": 1}
    server.faults = Scripted(answers=deque([fault] * 3))
    with pytest.raises(Unavailable):
        port.get(PODS, "p", "ml")
    assert len(server.seen) == 1 + 3 + 3


@pytest.mark.parametrize("fault", [*LOST, Fault.SERVER_ERROR])
def test_a_write_whose_answer_is_lost_is_not_repeated(server: ApiServer, port: ApiClient, fault: Fault) -> None:
    server.faults = Scripted(answers=deque([fault]))
    with pytest.raises(Unavailable):
        port.create(PODS, pod("p"), "ml")
    assert len(server.seen) == 1


def test_a_write_whose_answer_is_lost_says_that_it_may_have_happened(server: ApiServer, port: ApiClient) -> None:
    server.faults = Scripted(answers=deque([Fault.TORN]))
    with pytest.raises(Unavailable, match="it may have happened: look before you repeat it"):
        port.create(PODS, pod("p"), "ml")
    assert port.get(PODS, "p", "ml")["spec"] == {"n": 1}


def test_a_write_is_repeated_when_the_api_server_was_too_busy(server: ApiServer, port: ApiClient) -> None:
    server.faults = Scripted(answers=deque([Fault.TOO_MANY] * 2))
    port.create(PODS, pod("p"), "ml")
    server.faults = Scripted(answers=deque([Fault.TOO_MANY] * 3))
    with pytest.raises(Busy) as caught:
        port.create(PODS, pod("q"), "ml")
    assert caught.value.retry_after_s == 0.0


class Watchman:
    """Lets so many tries pass, and no more."""

    def __init__(self, passes: int) -> None:
        self.passes = passes

    def __call__(self) -> None:
        self.passes -= 1
        if self.passes < 0:
            raise Unavailable("not yours any more")


@pytest.fixture
def guarded(server: ApiServer) -> Iterator[tuple[ApiClient, Watchman]]:
    watchman = Watchman(0)
    port = ApiClient(access_to(server), answer_s=5.0, guard=watchman)
    yield port, watchman
    port.close()


@pytest.mark.parametrize("fault", [Fault.TOO_MANY, Fault.NO_TOKEN])
def test_a_write_is_not_repeated_by_who_lost_the_right_to_it_meanwhile(
    server: ApiServer, guarded: tuple[ApiClient, Watchman], fault: Fault
) -> None:
    """An API server may say "in five seconds", and by then another server of ours acts."""
    port, watchman = guarded
    watchman.passes = 1
    server.faults = Scripted(answers=deque([fault]))
    with pytest.raises(Unavailable, match="not yours any more"):
        port.create(PODS, pod("p"), "ml")
    assert len(server.seen) == 1
    watchman.passes = 2
    server.faults = Scripted(answers=deque([fault]))
    port.create(PODS, pod("p"), "ml")


def test_every_write_is_guarded_and_no_question_is(server: ApiServer, guarded: tuple[ApiClient, Watchman]) -> None:
    port, watchman = guarded
    writes: list[Callable[[], object]] = [
        lambda: port.create(PODS, pod("p"), "ml"),
        lambda: port.replace(PODS, pod("p"), "ml"),
        lambda: port.patch(PODS, "p", {"spec": {"n": 2}}, "ml"),
        lambda: port.bind("p", "ml", "uid", "node"),
        lambda: port.delete(PODS, "p", "ml"),
    ]
    for write in writes:
        with pytest.raises(Unavailable, match="not yours any more"):
            write()
    assert server.seen == []
    assert port.review_token(server.token)["authenticated"]
    port.create(PODS, pod("p"), "ml", dry_run=True)
    assert port.list(Selection(PODS, "ml")).continues is None
    assert watchman.passes == -len(writes)


def test_a_write_finds_a_kept_connection_closed_before_it_uses_it(server: ApiServer, port: ApiClient) -> None:
    """Load balancers and restarts close idle connections; a bind must not fail for that."""
    port.create(PODS, pod("p"), "ml")
    server.hang_up()
    port.create(PODS, pod("q"), "ml")
    assert len(server.seen) == 2


def test_a_new_token_is_read_when_the_old_one_is_refused(server: ApiServer, port: ApiClient) -> None:
    port.create(PODS, pod("p"), "ml")
    server.rotate()
    port.create(PODS, pod("q"), "ml")
    assert [request.headers["authorization"] for request in server.seen] == [
        "Bearer token-1",
        "Bearer token-1",
        "Bearer token-2",
    ]


def test_a_token_that_stays_refused_says_whose_it_is(server: ApiServer, port: ApiClient) -> None:
    server.token = "revoked"
    with pytest.raises(Unauthorized, match="does not accept the credential of the service account of the test"):
        port.create(PODS, pod("p"), "ml")
    assert len(server.seen) == 1


def test_an_api_server_that_says_nothing_is_left(server: ApiServer) -> None:
    port = ApiClient(Access(server.url, "default", Fixed(Credential.bearer(server.token), "us"), "us"), answer_s=0.2)
    server.faults = Scripted(answers=deque([Fault.HALF_OPEN]))
    with pytest.raises(Unavailable, match=r"did not answer in time.*it may have happened"):
        port.create(PODS, pod("p"), "ml")
    port.close()


def test_a_log_may_be_silent_for_long_but_its_answer_must_begin(server: ApiServer) -> None:
    """A half-open connection held whoever followed a log for the ten minutes that a program may say nothing."""
    port = ApiClient(Access(server.url, "default", Fixed(Credential.bearer(server.token), "us"), "us"), answer_s=0.2)
    server.faults = Scripted(answers=deque([Fault.HALF_OPEN]))
    with pytest.raises(Unavailable, match="did not answer in time"):
        port.log("p", "ml", follow=True)
    port.close()


def test_an_api_server_that_is_not_there_is_named() -> None:
    port = ApiClient(Access("http://127.0.0.1:1", "default", Fixed(Credential(), "us"), "context 'x' of f"))
    with pytest.raises(Unavailable) as caught:
        port.create(PODS, pod("p"), "ml")
    assert str(caught.value) == (
        "create pods 'p' in namespace 'ml': the API server at http://127.0.0.1:1 (context 'x' of f) cannot be "
        "reached: [Errno 111] Connection refused; is the cluster up, and the address right?"
    )
    port.close()


def test_closing_ends_whoever_waits(server: ApiServer, port: ApiClient) -> None:
    server.faults = Scripted(answers=deque([Fault.HALF_OPEN]))
    errors: list[Unavailable] = []

    def wait() -> None:
        with pytest.raises(Unavailable) as caught:
            port.get(PODS, "p", "ml")
        errors.append(caught.value)

    thread = threading.Thread(target=wait)
    thread.start()
    server.await_asked(1)
    port.close()
    thread.join(2)
    assert [str(error) for error in errors] == ["get pods 'p' in namespace 'ml': we are closing"]


# -- many at once --------------------------------------------------------------------------------------------------


def test_many_calls_run_at_once_and_answer_in_order(server: ApiServer, port: ApiClient) -> None:
    uids = [server.storage.create("pods", ("ml", f"p{n}"), {})["metadata"]["uid"] for n in range(300)]
    calls: list[Callable[[], None]] = [
        partial(port.bind, f"p{number}", "ml", "wrong" if number == 7 else uid, "node")
        for number, uid in enumerate(uids)
    ]
    results = port.gather(calls)
    assert [number for number, result in enumerate(results) if result is not None] == [7]
    assert isinstance(results[7], Conflict)
    assert 1 < server.connections <= 64


def test_a_bug_in_a_call_is_not_swallowed(port: ApiClient) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        port.gather([broken])
