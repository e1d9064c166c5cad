"""Pods of a Job that is not Indexed get the lowest number that is free, and keep it."""

from __future__ import annotations

from engines.kubernetes.pieces import ended, make_pod, make_wanted, running
from swell.engines.kubernetes.attempt.follow import number
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.steps import BindPod, object_steps
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, TaskPlace
from swell.engines.kubernetes.watch.observed_objects import Owner

from .pieces import NODES, make_object

ARRAY = make_wanted(places={0: TaskPlace("n1", (), 0), 1: TaskPlace("n2", (), 0)}, is_array=True, indices="0-3")
OF_JOB = {"owner": Owner("Job", "train", "object"), "annotations": {}}


def test_new_pods_get_the_lowest_numbers_and_keep_them() -> None:
    memory = AttemptMemory()
    first, second = make_pod(0, uid="a", **OF_JOB), make_pod(1, uid="b", **OF_JOB)
    assert number(((None, first), (None, second)), ARRAY, memory) == ((0, first), (1, second))
    third = make_pod(2, uid="c", **OF_JOB)
    assert number(((None, second), (None, third), (None, first)), ARRAY, memory) == (
        (1, second),
        (2, third),
        (0, first),
    )


def test_one_that_failed_leaves_its_number_to_the_next_and_one_that_succeeded_does_not() -> None:
    failed, done, new = ended(0, 1, uid="a"), ended(1, uid="b"), make_pod(2, uid="c", **OF_JOB)
    assert number(((0, failed), (1, done), (None, new)), ARRAY, AttemptMemory()) == ((0, failed), (1, done), (0, new))


def test_more_pods_than_tasks_have_no_number() -> None:
    one = make_wanted(1)
    pods = running(0, uid="a"), make_pod(1, uid="b", **OF_JOB)
    assert number(((0, pods[0]), (None, pods[1])), one, AttemptMemory()) == ((0, pods[0]), (None, pods[1]))


def test_the_number_is_written_on_the_pod_before_it_is_bound() -> None:
    pod = make_pod(0, **OF_JOB)
    seen = AttemptSeen(make_object("Job", pods_attempt=None), ((0, pod),), NODES)
    assert object_steps(ARRAY, seen, AttemptMemory(), Origin.FOUND_OBJECT) == (BindPod(pod, ARRAY.places[0], 0),)
