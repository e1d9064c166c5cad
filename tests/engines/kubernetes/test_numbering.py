"""Pods of a Job that is not Indexed get the lowest number that is free, and keep it."""

from __future__ import annotations

from engines.kubernetes.pieces import ended, make_pod, make_wanted, running
from swell.engines.kubernetes.numbering import number
from swell.engines.kubernetes.picture import Owner
from swell.engines.kubernetes.steps import Bind, object_steps
from swell.engines.kubernetes.wanted import Memory, Place, Seen

from .pieces import NODES, make_object

ARRAY = make_wanted(places={0: Place("n1", (), 0), 1: Place("n2", (), 0)}, is_array=True, indices="0-3")
OF_JOB = {"owner": Owner("Job", "train", "object"), "annotations": {}}


def test_new_pods_get_the_lowest_numbers_and_keep_them() -> None:
    memory = Memory()
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
    assert number(((0, failed), (1, done), (None, new)), ARRAY, Memory()) == ((0, failed), (1, done), (0, new))


def test_more_pods_than_tasks_have_no_number() -> None:
    one = make_wanted(1)
    pods = running(0, uid="a"), make_pod(1, uid="b", **OF_JOB)
    assert number(((0, pods[0]), (None, pods[1])), one, Memory()) == ((0, pods[0]), (None, pods[1]))


def test_the_number_is_written_on_the_pod_before_it_is_bound() -> None:
    pod = make_pod(0, **OF_JOB)
    seen = Seen(make_object("Job", pods_attempt=None), ((0, pod),), NODES)
    assert object_steps(ARRAY, seen, Memory(), is_ours=False) == (Bind(pod, ARRAY.places[0], 0),)
