"""Which GPUs are kept for those who share them, and who may be sent there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from engines.kubernetes.pieces import ended, make_object, make_pod, make_seen, make_wanted, running
from swell.engines.kubernetes.attempt.steps import BindPod, lanes_in_use
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, TaskPlace, Wanted
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.objects.objects import PodTemplateGroup
from swell.engines.kubernetes.sharing.reservation_pod import Told, parse_line, pod_name, without_user
from swell.engines.kubernetes.sharing.reservation_pod import make_pod as render
from swell.engines.kubernetes.sharing.reservations import (
    AskReservation,
    CreateReservation,
    Gpu,
    HeldReservation,
    Needed,
    RemoveReservation,
    SharedSeat,
    Step,
    admit,
    needed,
    obstacle,
    refusal,
    steps,
)
from swell.engines.kubernetes.sharing.reserver import Reservations
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.nodes import make_node
from swell.engines.kubernetes.watch.observed_objects import (
    DEVICE,
    NODE,
    NUMBER,
    RESERVATION,
    TOTAL,
    Ended,
    NodeSeen,
    PodSeen,
    read_pod,
)
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.model.cluster import Device
from swell.model.resources import Resources

A, B = ("n1", "gpu-0"), ("n1", "gpu-1")
ON_A, ON_B = TaskPlace("n1", ("gpu-0",), 0), TaskPlace("n1", ("gpu-1",), 0)
NOBODY: tuple[PodSeen, ...] = ()


def reserving(gpu: Gpu = A, **changes: Any) -> PodSeen:
    """Just made."""
    given = {
        "name": f"swell-{gpu[1]}",
        "uid": f"reservation-{gpu[1]}",
        "needs": Resources(0, 0, 1),
        "owner": None,
        "labels": {RESERVATION: gpu[1], STORE: "s"},
        "annotations": {NODE: gpu[0]},
    }
    return make_pod(0, **{**given, **changes})


def placed(gpu: Gpu = A, **changes: Any) -> PodSeen:
    return reserving(gpu, **{"node": gpu[0], "phase": "Running", "started_at": 950.0, **changes})


def ready(gpu: Gpu = A, uuid: str = "GPU-a", **changes: Any) -> PodSeen:
    return placed(gpu, annotations={NODE: gpu[0], DEVICE: uuid, TOTAL: "16384"}, **changes)


def sharing(gpu: Gpu = A, uuid: str = "GPU-a", **changes: Any) -> PodSeen:
    notes = {DEVICE: uuid, NUMBER: gpu[1]}
    return running(0, **{"node": gpu[0], "annotations": notes, "labels": {STORE: "s"}, **changes})


def shares(*places: TaskPlace, **changes: Any) -> Wanted:
    return make_wanted(len(places), places=dict(enumerate(places)), shares_mib=(6144,), **changes)


# -- what is needed ------------------------------------------------------------------------------------------------


def test_what_is_needed_is_what_somebody_shares_and_whole_gpus_are_not() -> None:
    stopping = shares(ON_B, is_stopping=True)
    whole = make_wanted(2)
    assert needed([shares(ON_A), stopping, whole]) == Needed(frozenset({A}), frozenset({A, B}))


def test_a_gpu_whose_ranks_have_all_ended_is_not_kept_for_the_others_of_their_gang() -> None:
    assert needed([shares(ON_A, ON_B, emptied=frozenset({0}))]) == Needed(frozenset({B}), frozenset({B}))


FAILED = reserving(node="n1", phase="Failed", ended=Ended(990.0, None, "UnexpectedAdmissionError", "no GPU", False))
WANTS_A = Needed(frozenset({A}), frozenset({A}))
KEEPS_A = Needed(frozenset(), frozenset({A}))


@pytest.mark.parametrize(
    ("what", "need", "pods", "sharers", "expected"),
    [
        ("nothing is there yet", WANTS_A, (), NOBODY, (CreateReservation(A),)),
        ("it was made", WANTS_A, (reserving(),), NOBODY, (SharedSeat(A, reserving()),)),
        ("it starts", WANTS_A, (reserving(node="n1"),), NOBODY, ()),
        ("it runs", WANTS_A, (placed(),), NOBODY, (AskReservation(A, placed()),)),
        ("it has told", WANTS_A, (ready(),), NOBODY, ()),
        ("its node refused it", WANTS_A, (FAILED,), NOBODY, (RemoveReservation(A, FAILED),)),
        ("somebody deleted it, and sharers run on", WANTS_A, (), (sharing(),), (CreateReservation(A),)),
        ("the last one is gone", Needed(), (ready(),), NOBODY, (RemoveReservation(A, ready()),)),
        ("the last one ends", KEEPS_A, (ready(),), (sharing(),), ()),
        ("the last one ends, and it is lost", KEEPS_A, (), (sharing(),), ()),
        ("a pod of a job that is not known any more runs on it", Needed(), (ready(),), (sharing(),), ()),
        ("it goes, and somebody wants it again", WANTS_A, (ready(is_deleting=True),), NOBODY, ()),
        (
            "the one is needed, the other is not",
            WANTS_A,
            (ready(), ready(B, "GPU-b")),
            NOBODY,
            (RemoveReservation(B, ready(B, "GPU-b")),),
        ),
    ],
)
def test_a_reservation(
    what: str, need: Needed, pods: tuple[PodSeen, ...], sharers: tuple[PodSeen, ...], expected: tuple[Step, ...]
) -> None:
    there = {(pod.annotations[NODE], pod.labels[RESERVATION]): pod for pod in pods}
    assert steps(need, there, sharers, {"n1"}, is_settled=True) == expected, what


def test_after_a_start_nothing_is_given_back_before_everybody_is_known() -> None:
    assert steps(Needed(), {A: ready()}, (), {"n1"}, is_settled=False) == ()


def test_nothing_is_reserved_on_a_node_that_is_away() -> None:
    assert steps(WANTS_A, {}, (), set(), is_settled=True) == ()
    assert steps(WANTS_A, {A: reserving()}, (), set(), is_settled=True) == ()


# -- who may be bound ----------------------------------------------------------------------------------------------

FIRST, SECOND = make_pod(0), make_pod(1)


@pytest.mark.parametrize(
    ("what", "wanted", "places", "pods", "held"),
    [
        (
            "its GPU is known",
            shares(ON_A),
            (ON_A,),
            (ready(),),
            HeldReservation((BindPod(FIRST, ON_A, gpu="GPU-a"),)),
        ),
        (
            "two of one job share one GPU",
            shares(ON_A, ON_A),
            (ON_A, ON_A),
            (ready(),),
            HeldReservation((BindPod(FIRST, ON_A, gpu="GPU-a"), BindPod(SECOND, ON_A, gpu="GPU-a"))),
        ),
        (
            "its GPU is not reserved yet",
            shares(ON_A),
            (ON_A,),
            (),
            HeldReservation((), "GPU 0 of node n1 is being reserved"),
        ),
        (
            "a gang waits for the GPU of one of its members",
            shares(ON_A, ON_B),
            (ON_A, ON_B),
            (ready(),),
            HeldReservation((), "GPU 1 of node n1 is being reserved"),
        ),
        (
            "the tasks of an array wait each for itself",
            shares(ON_A, ON_B, is_array=True),
            (ON_A, ON_B),
            (ready(),),
            HeldReservation((BindPod(FIRST, ON_A, gpu="GPU-a"),), "GPU 1 of node n1 is being reserved"),
        ),
        ("whole GPUs that nobody shared", make_wanted(), (ON_B,), (ready(),), HeldReservation((BindPod(FIRST, ON_B),))),
        (
            "a whole GPU that is still reserved",
            make_wanted(),
            (ON_A,),
            (ready(is_deleting=True),),
            HeldReservation((), "GPU 0 of node n1 is being given back by those who shared it"),
        ),
    ],
)
def test_who_is_sent_to_a_gpu(
    what: str, wanted: Wanted, places: tuple[TaskPlace, ...], pods: tuple[PodSeen, ...], held: HeldReservation
) -> None:
    binds = [BindPod(pod, place) for pod, place in zip((FIRST, SECOND), places, strict=False)]
    there = {(pod.annotations[NODE], pod.labels[RESERVATION]): pod for pod in pods}
    assert admit(wanted, binds, there, (), {}) == held, what


ANEW = "GPU 0 of node n1 is GPU-b since its reservation was made anew, but pod team/train-worker-0 runs on GPU-"


@pytest.mark.parametrize(
    ("what", "pod", "sharers", "problem", "said"),
    [
        ("all is well", ready(), (sharing(), sharing(B, "GPU-b")), "", ""),
        (
            "it cannot be made",
            None,
            NOBODY,
            "exceeded quota: team",
            "GPU 0 of node n1 cannot be reserved for sharing: exceeded quota: team",
        ),
        ("it goes", ready(is_deleting=True), NOBODY, "", "GPU 0 of node n1 is being reserved"),
        (
            "it starts",
            reserving(node="n1", runtime_class="nvidia"),
            NOBODY,
            "",
            "GPU 0 of node n1 is being reserved: its pod team/swell-gpu-0 (RuntimeClass nvidia) does not run yet",
        ),
        (
            "its image cannot be pulled",
            reserving(node="n1", waiting="ErrImagePull: no such image"),
            NOBODY,
            "",
            "GPU 0 of node n1 is being reserved: ErrImagePull: no such image",
        ),
        (
            "it was made anew, and others see another GPU under its number",
            ready(uuid="GPU-b"),
            (sharing(),),
            "",
            f"{ANEW}a as GPU 0 of node n1; nobody else is sent there until it has ended",
        ),
        (
            "it was made anew, and got the GPU that others see under another number",
            ready(uuid="GPU-b"),
            (sharing(B, "GPU-b"),),
            "",
            f"{ANEW}b as GPU 1 of node n1; nobody else is sent there until it has ended",
        ),
        ("others are of another node", ready(), (sharing(("n2", "gpu-0"), "GPU-c"),), "", ""),
    ],
)
def test_what_keeps_others_from_sharing_it(
    what: str, pod: PodSeen | None, sharers: tuple[PodSeen, ...], problem: str, said: str
) -> None:
    assert obstacle(A, pod, sharers, problem) == said, what


def test_an_array_whose_lanes_share_several_gpus_fills_the_gpu_that_has_become_free() -> None:
    """Had the second pod been counted for the first GPU, the second would have been promised twice."""
    wanted = shares(ON_A, ON_B, is_array=True, indices="0-3")
    job = make_object("Job", groups=(PodTemplateGroup("", 4, 0),))
    seen = make_seen(job, ended(0), running(1, node="n1", annotations={NUMBER: "gpu-1"}), make_pod(2, node=""))
    assert lanes_in_use(wanted, seen, AttemptMemory()) == {"pod-1": 1}
    bound = AttemptMemory(bound={"pod-2": "n1"}, shared={"pod-2": "gpu-0"})
    assert lanes_in_use(wanted, seen, bound) == {"pod-1": 1, "pod-2": 0}


# -- what a node offers --------------------------------------------------------------------------------------------

NODE_SEEN = NodeSeen("n1", Resources(4000, 8192, 3), 110, (), (), False, True, None, 16384, "A100")


def free_and_taken(*pods: PodSeen, foreign: tuple[PodSeen, ...] = (), held: frozenset[str] = frozenset()) -> Any:
    return make_node(NODE_SEEN, foreign, held, pods).devices


def test_a_gpu_is_taken_until_the_pod_that_reserved_it_is_gone() -> None:
    gpus = [Device(f"gpu-{number}", 16384, "A100") for number in range(3)]
    taken = [replace(gpu, outsiders_mib=16384) for gpu in gpus]
    stranger = running(5, node="n1", needs=Resources(0, 0, 1))
    assert free_and_taken(ready()) == (taken[0], gpus[1], gpus[2])
    assert free_and_taken(ready(), held=frozenset({"gpu-0"})) == tuple(gpus)
    assert free_and_taken(ready(), foreign=(stranger,)) == (taken[0], gpus[1], taken[2])
    assert free_and_taken() == tuple(gpus)


def test_a_gpu_has_the_memory_that_its_reservation_found() -> None:
    small = placed(annotations={NODE: "n1", DEVICE: "GPU-a", TOTAL: "8192"})
    assert [gpu.memory_mib for gpu in free_and_taken(small, held=frozenset({"gpu-0"}))] == [8192, 16384, 16384]


# -- the pod itself ------------------------------------------------------------------------------------------------


def test_a_reservation_asks_for_one_gpu_and_counts_for_nothing_else() -> None:
    made = render(A, store="store", namespace="swell", image="busybox", runtime_class="nvidia")
    metadata = {**made["metadata"], "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    seen = read_pod({**made, "metadata": metadata})
    assert (seen.needs, seen.scheduler, seen.runtime_class) == (Resources(0, 0, 1), "swell", "nvidia")
    assert (seen.labels, seen.annotations) == ({RESERVATION: "gpu-0", STORE: "store"}, {NODE: "n1"})
    assert seen.document is None  # nobody takes it for a job that came by kubectl
    assert "runtimeClassName" not in render(A, store="s", namespace="n", image="i", runtime_class=None)["spec"]
    assert "runAsUser" not in without_user(made)["spec"]["securityContext"]


def test_its_name_is_of_one_store_node_and_gpu() -> None:
    long = "gpu-node.with-a-very-long-name.eu-central-1.compute.internal"
    names = [
        pod_name("s", ("n1", "gpu-3")),
        pod_name("t", ("n1", "gpu-3")),
        pod_name("s", (long, "gpu-0")),
        pod_name("s", (f"{long}2", "gpu-0")),
    ]
    assert names[0].startswith("swell-gpu-n1-")
    assert names[0].endswith("-3")
    assert len(set(names)) == 4
    assert max(len(name) for name in names) <= 63


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", None),
        ("swell-gpu visible=GPU-1 driver=\n", Told("GPU-1")),
        ("swell-gpu visible=GPU-1 driver=GPU-1,81920\n", Told("GPU-1", 81920)),
        ("swell-gpu visible=MIG-1 driver=GPU-1,81920\n", Told("MIG-1")),
        ("swell-gpu visible=3 driver=\n", Told("3")),
        ("swell-gpu visible=void driver=GPU-1,81920\n", Told("GPU-1", 81920)),
        ("swell-gpu visible=/var/run/nvidia-container-devices driver=GPU-1,[N/A]\n", Told("GPU-1")),
        (
            "swell-gpu visible=all driver=GPU-1,1;GPU-2,1\n",
            Told("", problem="its pod sees NVIDIA_VISIBLE_DEVICES='all', and 2 GPUs by nvidia-smi: not one"),
        ),
        (
            "swell-gpu visible= driver=\n",
            Told("", problem="its pod sees NVIDIA_VISIBLE_DEVICES='', and 0 GPUs by nvidia-smi: not one"),
        ),
    ],
)
def test_what_a_reservation_says_of_its_gpu(line: str, told: Told | None) -> None:
    assert parse_line(line) == told


# -- a node that refuses -------------------------------------------------------------------------------------------

LACKS = "OCI runtime create failed: insufficient privileges to read device list from NVIDIA_VISIBLE_DEVICES envvar"


@pytest.mark.parametrize("reason", ["CreateContainerError", "RunContainerError", "StartError"])
def test_a_node_that_does_not_take_the_variable_is_named(reason: str) -> None:
    assert refusal(sharing(runtime_class="nvidia"), f"{reason}: {LACKS}") == (
        "; node n1 does not give a pod the GPU that NVIDIA_VISIBLE_DEVICES names (RuntimeClass: nvidia); "
        "allow it there (docs/gpus.md), or ask for whole GPUs"
    )


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (running(0), f"StartError: {LACKS}"),
        (sharing(), 'StartError: exec: "trian": executable file not found in $PATH'),
        (sharing(), "ImagePullBackOff: registry/nvidia-container is not there"),
        (sharing(), "Error: NVIDIA_VISIBLE_DEVICES"),
    ],
)
def test_other_failures_are_not_taken_for_that(pod: PodSeen, said: str) -> None:
    assert refusal(pod, said) == ""


class Sharing:
    """A cluster in which one GPU is reserved, and these pods run on its node."""

    def __init__(self, *pods: PodSeen) -> None:
        self._pods = list(pods)

    def reservations(self, _: str) -> list[PodSeen]:
        return [ready(namespace="swell")]

    def pods_on(self, _: str) -> list[PodSeen]:
        return self._pods


@pytest.mark.parametrize(("namespace", "may_go"), [("team", False), ("elsewhere", True)])
def test_a_pod_counts_as_one_that_shares_a_gpu_where_its_job_is(namespace: str, *, may_go: bool) -> None:
    """With the labels and annotations of one, a pod in any namespace kept a GPU from everybody else."""
    other = sharing(uuid="GPU-b", labels={STORE: "s", "swell.dev/job": "7"}, namespace=namespace)
    places = {7: frozenset({"team"})}
    found = Reservations(
        cast(ApiClient, None),
        cast(Cluster, Sharing(other)),
        store="s",
        namespace="swell",
        image="busybox",
        monotonic=lambda: 0.0,
        where=places.get,
    ).admit(shares(ON_A), [BindPod(FIRST, ON_A)])
    said = (
        ""
        if may_go
        else ANEW.replace("GPU-b since", "GPU-a since") + "b as GPU 0 of node n1; nobody else is sent there"
    )
    assert (bool(found.binds), found.why) == (may_go, said and f"{said} until it has ended")
