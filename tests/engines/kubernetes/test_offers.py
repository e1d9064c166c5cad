"""What do all the nodes offer us?"""

from __future__ import annotations

from typing import cast

from swell.engines.kubernetes.attempt.live_attempts import LiveAttempts
from swell.engines.kubernetes.objects.objects import JobPlaces
from swell.engines.kubernetes.sharing.reserver import Reservations
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.nodes import Offers
from swell.engines.kubernetes.watch.observed_objects import NodeSeen, PodSeen
from swell.model.resources import Resources

from .pieces import FIRST, make_pod, make_wanted

REFERENCE = {"kind": "Pods", "metadata": {"uid": "pod-0"}, "pods": [{"name": "train-worker-0", "uid": "pod-0"}]}


def node(name: str) -> NodeSeen:
    return NodeSeen(name, Resources(4000, 8192, 2), 110, (), (), False, True, None, 1024, "GPU")


class Standing:
    """Pods that stand on nodes, by the name of the node."""

    def __init__(self) -> None:
        self.pods: dict[str, list[PodSeen]] = {}

    def pods_on(self, name: str) -> list[PodSeen]:
        return self.pods.get(name, [])

    def root(self, pod: PodSeen) -> str:
        return pod.uid

    def is_one(self, pod: PodSeen) -> bool:
        return False


def test_nodes_are_the_same_objects_and_the_same_tuple_until_one_of_them_offers_something_else() -> None:
    there = Standing()
    live_attempts = LiveAttempts("s", JobPlaces("team"))
    offers = Offers(cast(Cluster, there), live_attempts, cast(Reservations, there))
    seen = {"n1": node("n1"), "n2": node("n2")}
    first = offers.look(seen, ())
    live_attempts.begin(make_wanted(1), REFERENCE)
    there.pods["n1"] = [make_pod(0, node="n1", owner=None)]  # ours: it is counted where it was planned
    again = offers.look(seen, ["n1"])
    there.pods["n2"] = [make_pod(1, node="n2", owner=None)]
    other = offers.look(seen, ["n2"])
    gone = offers.look({"n2": seen["n2"]}, ())

    assert [(one.id, one.cpus_milli, one.tasks_max) for one in first] == [("n1", 4000, 110), ("n2", 4000, 110)]
    assert again is first
    assert [(one.id, one.cpus_milli, one.tasks_max) for one in other] == [("n1", 4000, 110), ("n2", 3900, 109)]
    assert other[0] is first[0]
    assert gone == other[1:]


def test_a_pod_of_ours_that_somebody_has_put_elsewhere_takes_room_there() -> None:
    there = Standing()
    live_attempts = LiveAttempts("s", JobPlaces("team"))
    offers = Offers(cast(Cluster, there), live_attempts, cast(Reservations, there))
    reference = {"kind": "Pods", "metadata": {"uid": "pod-0"}, "pods": [{"uid": f"pod-{rank}"} for rank in range(2)]}
    live_attempts.begin(make_wanted(2), reference)  # the first was to run on n1, the other on n2
    there.pods["n2"] = [make_pod(rank, node="n2", owner=None) for rank in range(2)]
    offered = offers.look({"n1": node("n1"), "n2": node("n2")}, ())
    assert [(one.id, one.cpus_milli, one.tasks_max) for one in offered] == [("n1", 4000, 110), ("n2", 3900, 109)]


def test_what_another_has_taken_of_a_job_that_has_no_pod_there_is_not_free_when_the_job_gives_up() -> None:
    """It was planned again at once, and the node held more than it has (faults 16)."""
    there = Standing()
    live_attempts = LiveAttempts("s", JobPlaces("team"))
    offers = Offers(cast(Cluster, there), live_attempts, cast(Reservations, there))
    live_attempts.begin(make_wanted(1), REFERENCE)  # has gpu-0 of n1
    there.pods["n1"] = [make_pod(1, node="n1", owner=None), make_pod(2, node="n1", owner=None)]
    [crowded] = offers.look({"n1": node("n1")}, ())
    there.pods["n1"] = [make_pod(0, node="n1", owner=None), make_pod(1, node="n1", owner=None)]
    [shared] = offers.look({"n1": node("n1")}, ["n1"])
    assert [device.outsiders_mib for device in crowded.devices] == [1024, 1024]
    assert [device.outsiders_mib for device in shared.devices] == [0, 1024]


def test_a_pod_elsewhere_that_has_the_labels_of_a_job_takes_its_own_room() -> None:
    """Its labels were believed: it was counted as the job's, and the job's own pod beside it not at all."""
    there = Standing()
    live_attempts = LiveAttempts("s", JobPlaces("team"))
    offers = Offers(cast(Cluster, there), live_attempts, cast(Reservations, there))
    live_attempts.begin(make_wanted(1), {"kind": "Pod", "metadata": {"name": "train"}})
    labels = {"swell.dev/store": "s", "swell.dev/job": str(FIRST.job)}
    mine = make_pod(0, node="n1", owner=None, labels=labels)
    large = Resources(3000, 4096, 1)
    there.pods["n1"] = [make_pod(1, node="n1", owner=None, labels=labels, namespace="elsewhere", needs=large), mine]
    [offered] = offers.look({"n1": node("n1")}, ())
    assert (offered.cpus_milli, offered.memory_mib, offered.tasks_max) == (1000, 4096, 109)
