"""The mirror: pages and lines in, state and changes out, and never anything but what a fresh list would give."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.engines.kubernetes.watch.mirror import Mirror, Relist, WatchChange

Mirrored = Mirror[dict[str, Any]]


def document(name: str, version: int, uid: str = "u", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "a", "name": name, "uid": uid, "resourceVersion": str(version)}, "spec": spec}


def line(kind: str, value: object) -> bytes:
    return json.dumps({"type": kind, "object": value}).encode()


def listed(version: int, *items: dict[str, Any], into: Mirrored | None = None) -> Mirrored:
    mirror = into or Mirror(dict)
    mirror.replace(mirror.gather(str(version), [items]))
    return mirror


def test_a_list_says_what_is_new_what_is_other_and_what_is_gone() -> None:
    same, old, gone = document("same", 1), document("other", 2), document("gone", 3)
    mirror = listed(3, same, old, gone)
    new, other = document("new", 5), document("other", 4)
    changes = mirror.replace(mirror.gather("5", [[document("same", 1)], [other, new]]))
    assert changes == (
        WatchChange(("a", "gone"), gone, None),
        WatchChange(("a", "new"), None, new),
        WatchChange(("a", "other"), old, other),
    )


def test_events_change_one_object_each_and_move_the_version() -> None:
    mirror = listed(1)
    one, two = document("x", 2), document("x", 3)
    changes = [mirror.apply(line(kind, value)) for kind, value in (("ADDED", one), ("MODIFIED", two))]
    changes.append(mirror.apply(line("DELETED", document("x", 4))))
    key = ("a", "x")
    assert changes == [WatchChange(key, None, one), WatchChange(key, one, two), WatchChange(key, two, None)]
    assert (dict(mirror.snapshot()), mirror.version) == ({}, "4")


def test_a_bookmark_moves_the_version_and_nothing_else() -> None:
    mirror = listed(1, document("x", 1))
    before = mirror.snapshot()
    assert mirror.apply(line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})) is None
    assert (mirror.version, mirror.snapshot() is before) == ("9", True)


def test_an_object_made_anew_under_the_same_name_is_another() -> None:
    first, second = document("x", 1, uid="first"), document("x", 2, uid="second")
    mirror = listed(1, first)
    assert mirror.replace(mirror.gather("2", [[second]])) == (WatchChange(("a", "x"), first, second),)


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type": "ADDED", "obj',
        b"[]",
        line("ADDED", None),
        line("ADDED", {"metadata": {"name": "x"}}),
        line("ADDED", {"metadata": {"name": "x", "resourceVersion": "7"}}),
        line("ADDED", {"metadata": None}),
        line("RENAMED", document("x", 7)),
        line("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"}),
        line("ERROR", None),
        line("MODIFIED", document("x", 4)),
        line("BOOKMARK", {"metadata": {"resourceVersion": "4"}}),
        line("ADDED", document("other", 5)),
        line("DELETED", document("x", 5)),
    ],
)
def test_what_is_not_understood_asks_for_a_list_and_changes_nothing(bad: bytes) -> None:
    mirror = listed(5, document("x", 5))
    before = mirror.snapshot()
    with pytest.raises(Relist):
        mirror.apply(bad)
    assert (mirror.needs_list, mirror.version, mirror.snapshot() is before) == (True, "5", True)


def test_versions_that_are_no_numbers_are_only_compared_for_being_equal() -> None:
    mirror: Mirrored = Mirror(dict)
    mirror.replace(mirror.gather("b", [[]]))
    odd = document("x", 0)
    odd["metadata"]["resourceVersion"] = "a"
    assert mirror.apply(line("ADDED", odd)) == WatchChange(("a", "x"), None, odd)
    assert mirror.apply(line("ADDED", odd)) is None


def test_after_a_step_back_in_time_equal_versions_prove_nothing() -> None:
    """A restored etcd gives numbers out a second time: same object, same version, another content."""
    mirror = listed(9, document("x", 7, n=1), document("y", 2, n=1))
    before = mirror.snapshot()
    changes = mirror.replace(mirror.gather("8", [[document("x", 7, n=2), document("y", 2, n=1)]]))
    assert changes == (WatchChange(("a", "x"), document("x", 7, n=1), document("x", 7, n=2)),)
    assert mirror.snapshot()["a", "y"] is before["a", "y"]


def test_a_document_that_cannot_be_read_is_left_as_it_was_and_the_watch_goes_on() -> None:
    def read(value: dict[str, Any]) -> int:
        return int(value["spec"]["n"])

    mirror = Mirror(read)
    mirror.replace(mirror.gather("1", [[document("x", 1, n=1)]]))
    assert mirror.apply(line("MODIFIED", document("x", 2))) is None
    assert (dict(mirror.snapshot()), mirror.version, mirror.needs_list) == ({("a", "x"): 1}, "2", False)


# -- any sequence --------------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=25)
FAULTS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["repeat", "swap", "garbage"])), max_size=6)


def history(steps: list[tuple[str, bool]]) -> tuple[list[bytes], list[dict[str, dict[str, Any]]]]:
    """The lines of a watch from version 0 on, and the state after each."""
    state: dict[str, dict[str, Any]] = {}
    lines, states = [], [dict(state)]
    for version, (name, is_deleted) in enumerate(steps, start=1):
        if is_deleted and name in state:
            gone = state.pop(name)
            lines.append(line("DELETED", document(name, version, gone["metadata"]["uid"])))
        else:
            held = state.get(name)
            uid = held["metadata"]["uid"] if held else f"uid-{version}"
            state[name] = document(name, version, uid, n=version)
            lines.append(line("MODIFIED" if held else "ADDED", state[name]))
        states.append(dict(state))
    return lines, states


def spoilt(lines: list[bytes], faults: list[tuple[int, str]]) -> list[bytes]:
    lines = list(lines)
    for at, fault in faults:
        if fault == "garbage":
            lines.insert(min(at, len(lines)), b'{"type":')
        elif fault == "repeat" and at < len(lines):
            lines.insert(at, lines[at])
        elif at + 1 < len(lines):
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
    return lines


@given(STEPS, FAULTS)
def test_repeated_reordered_and_broken_lines_end_in_the_state_of_a_fresh_list(
    steps: list[tuple[str, bool]], faults: list[tuple[int, str]]
) -> None:
    """Whoever asks for a list gets the newest state, and what follows it; as the reflector does it."""
    lines, states = history(steps)
    mirror, told = listed(0), dict[tuple[str, str], Any]()

    def hear(*changes: WatchChange[dict[str, Any]] | None) -> None:
        for change in filter(None, changes):
            assert told.get(change.key) == change.before
            told.pop(change.key, None)
            if change.after is not None:
                told[change.key] = change.after

    for each in spoilt(lines, faults):
        try:
            hear(mirror.apply(each))
        except Relist:
            fresh = mirror.gather(str(len(steps)), [states[-1].values()])
            hear(*mirror.replace(fresh))
    expected = {("a", name): value for name, value in states[-1].items()}
    assert dict(mirror.snapshot()) == told == expected
