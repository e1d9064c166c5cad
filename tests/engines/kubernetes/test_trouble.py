"""What keeps an attempt from starting, or from going on, as the controller is told."""

from __future__ import annotations

import pytest

from swell.engines.kubernetes.attempt.follow import follow
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.state import Followed
from swell.engines.kubernetes.attempt.wanted import AttemptMemory
from swell.engines.kubernetes.watch.observed_objects import ATTEMPT, NUMBER, PodSeen, Restarted

from .pieces import FIRST, NOW, alive, ended, make_object, make_pod, make_seen, make_wanted, never, over, running


def test_an_attempt_that_was_given_up_says_why() -> None:
    memory = AttemptMemory(unplaced="exceeded quota: team")
    found = follow(make_wanted(), make_seen(make_object(), make_pod(0)), memory, NOW, Origin.OUR_OBJECT)
    assert found == Followed((never(0, "not-placed", "exceeded quota: team"),))
    first = make_seen(make_object(), ended(0), make_pod(1))
    found = follow(make_wanted(), first, memory, NOW, Origin.OUR_OBJECT)
    assert found == Followed((never(1, "not-placed", "exceeded quota: team"),)), "the end of another hides it"


def test_an_attempt_whose_gpu_is_not_reserved_yet_says_so() -> None:
    memory = AttemptMemory(held="GPU 0 of node n1 is being reserved")
    found = follow(make_wanted(), make_seen(make_object(), make_pod(0), make_pod(1)), memory, NOW, Origin.OUR_OBJECT)
    assert found == Followed(trouble="GPU 0 of node n1 is being reserved")


LACKS = "insufficient privileges to read device list from NVIDIA_VISIBLE_DEVICES envvar"
REFUSED = (
    "; node n1 does not give a pod the GPU that NVIDIA_VISIBLE_DEVICES names (RuntimeClass: none, so the default); "
    "allow it there (docs/gpus.md), or ask for whole GPUs"
)
SHARES = {"annotations": {ATTEMPT: str(FIRST), NUMBER: "gpu-0"}}


@pytest.mark.parametrize(
    ("what", "pod", "followed"),
    [
        (
            "it is tried again",
            make_pod(0, node="n1", waiting=f"StartError: {LACKS}", **SHARES),
            Followed(trouble=f"pod train-worker-0: StartError: {LACKS}{REFUSED}"),
        ),
        (
            "it has ended",
            ended(0, 128, "StartError", LACKS, **SHARES),
            Followed((over(0, 990.0, None, "not-placed", f"StartError: {LACKS}{REFUSED}"),), is_finished=True),
        ),
    ],
)
def test_a_node_that_refuses_a_shared_gpu_is_named(what: str, pod: PodSeen, followed: Followed) -> None:
    assert follow(make_wanted(1), make_seen(None, pod), AttemptMemory(), NOW, Origin.OUR_PODS) == followed, what


BACK_OFF = "CrashLoopBackOff: back-off 40s restarting failed container"
ONCE = "pod train-worker-0 keeps ending: begun again once, the last time after exit code 1"
THRICE = "pod train-worker-0 keeps ending: begun again 3 times, the last time after exit code "


@pytest.mark.parametrize(
    ("what", "pod", "trouble"),
    [
        ("it was begun again, and runs", running(0, restarted=Restarted(1, 1, "Error", 990.0)), ""),
        ("and has ended once more", running(0, waiting=BACK_OFF, restarted=Restarted(1, 1, "Error", None)), ONCE),
        ("it waits to be begun", running(0, waiting=BACK_OFF, restarted=Restarted(3, 1, "Error", None)), f"{THRICE}1"),
        ("it was begun a moment ago", running(0, restarted=Restarted(3, 1, "Error", 990.0)), f"{THRICE}1"),
        (
            "it needs more memory than it may have",
            running(0, restarted=Restarted(3, 137, "OOMKilled", None)),
            f"{THRICE}137 (OOMKilled)",
        ),
        (
            "it did its work, and is made to do it again",
            running(0, restarted=Restarted(3, 0, "Completed", None)),
            f"{THRICE}0",
        ),
        ("it has run for ten minutes since", running(0, restarted=Restarted(3, 1, "Error", 399.0)), ""),
        ("it has ended for good", ended(0, 1, restarted=Restarted(3, 1, "Error", None)), ""),
    ],
)
def test_a_pod_that_keeps_ending_is_trouble_although_it_runs(what: str, pod: PodSeen, trouble: str) -> None:
    seen = make_seen(make_object(), pod, running(1))
    found = follow(make_wanted(has_begun=True), seen, AttemptMemory(), NOW, Origin.OUR_OBJECT)
    assert found == Followed((alive(0), alive(1)), trouble=trouble), what
