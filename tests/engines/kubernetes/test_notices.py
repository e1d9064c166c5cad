"""What notices look like: whole documents, as the API server takes them."""

from __future__ import annotations

import pytest

from swell.engines.kubernetes.client.resources import PODS, Resource
from swell.kubectl.status_objects import (
    ObjectTarget,
    StatusMessage,
    annotations_patch,
    condition_patch,
    condition_said,
    event_name,
    make_event,
    repeat_patch,
    repeated_name,
    shorten,
)

from .pieces import make_pod

TRAIN = ObjectTarget(Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"), "team", "train", "u-1")


def test_a_pod_that_waits_gets_the_condition_that_autoscalers_look_for() -> None:
    assert condition_patch(make_pod(uid="u"), "17", "no room", 0.5) == {
        "metadata": {"uid": "u", "resourceVersion": "17"},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "no room",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                }
            ]
        },
    }


def test_other_words_are_no_transition() -> None:
    [said] = condition_patch(make_pod(is_told=True), "17", "no room", 0.5)["status"]["conditions"]
    assert said == {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}], "no room"),
        ([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}], ""),
        ([{"type": "Ready", "status": "False", "reason": "Unschedulable", "message": "no"}], ""),
        (None, ""),
    ],
)
def test_what_a_pod_says_of_its_wait_is_read_from_it(conditions: object, said: str) -> None:
    assert condition_said({"status": {"conditions": conditions}}) == said


def test_annotations_are_of_that_very_object_and_what_is_over_is_removed() -> None:
    assert annotations_patch(TRAIN, {"state": "running", "reason": None}) == {
        "metadata": {"uid": "u-1", "annotations": {"swell.dev/state": "running", "swell.dev/reason": None}}
    }


def test_an_event_names_its_object_and_who_says_it() -> None:
    word = StatusMessage("NotPlaced", "node n1 refused it", is_warning=True)
    assert make_event(TRAIN, "train.1", word, at=1.25, instance="store") == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "train.1", "namespace": "team"},
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "namespace": "team",
            "name": "train",
            "uid": "u-1",
        },
        "type": "Warning",
        "reason": "NotPlaced",
        "action": "NotPlaced",
        "message": "node n1 refused it",
        "firstTimestamp": "1970-01-01T00:00:01Z",
        "lastTimestamp": "1970-01-01T00:00:01Z",
        "eventTime": "1970-01-01T00:00:01.250000Z",
        "count": 1,
        "source": {"component": "swell"},
        "reportingComponent": "swell.dev/swell",
        "reportingInstance": "store",
    }


def test_what_is_said_again_is_counted() -> None:
    again = repeat_patch(StatusMessage("Waiting", "still no room"), at=61.0, count=3)
    assert again == {"message": "still no room", "lastTimestamp": "1970-01-01T00:01:01Z", "count": 3}


def test_events_of_one_second_are_listed_in_the_order_in_which_they_happened() -> None:
    names = [event_name(TRAIN, "0123456789abcdef", number) for number in (9, 10, 11, 100_000)]
    assert names == sorted(names)
    assert names[0] == "train.012345670000000000000009"


def test_one_thing_has_one_name_for_each_object() -> None:
    other = ObjectTarget(PODS, "team", "train", "u-2")
    names = {repeated_name(one, kind) for one in (TRAIN, other) for kind in ("WaitingForRoom", "Held")}
    assert len(names) == 4
    assert repeated_name(TRAIN, "Held") == repeated_name(TRAIN, "Held")


def test_names_of_events_are_short_enough_for_the_longest_name_of_an_object() -> None:
    longest = ObjectTarget(PODS, "team", "a" * 253, "u")
    assert max(len(event_name(longest, "s" * 32, 2**63)), len(repeated_name(longest, "Held"))) <= 253


@pytest.mark.parametrize("text", ["x" * 1024, "€" * 341])
def test_a_message_that_fits_is_left_alone(text: str) -> None:
    assert shorten(text) == text


@pytest.mark.parametrize("text", ["x" * 1025, "€" * 342, "x" + "€" * 400])
def test_a_long_message_is_cut_at_a_character_and_says_so(text: str) -> None:
    cut = shorten(text)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
