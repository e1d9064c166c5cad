"""What the kernel lists, with names that users gave to their mounts and groups."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from swell.worker import cgroups
from swell.worker.cgroups import Hierarchy

NAMES = st.binary(max_size=30).map(lambda name: name.replace(b" ", b"\\040").replace(b"\n", b"\\012"))
REAL = b"30 23 0:26 / /sys rw - cgroup2 cgroup2 rw\n"


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=5))
def test_mounts_of_any_name_and_kind_hide_none_and_are_none(mounts: list[tuple[bytes, bytes, bytes]]) -> None:
    """A user mounts a file system of their own (FUSE) under a name that is no text: the worker did not start."""
    lines = [
        b"99 23 0:99 / /home/" + at + b" rw - fuse." + kind + b" " + source + b" rw\n" for at, kind, source in mounts
    ]
    assert list(cgroups.parse(b"".join(lines) + REAL, b"0::/\n")) == [Hierarchy(2, frozenset(), REAL_FOLDER, "/")]


REAL_FOLDER = next(iter(cgroups.parse(REAL, b"0::/\n"))).folder


@given(st.lists(st.binary(min_size=1, max_size=60).filter(lambda line: b"\n" not in line), max_size=5))
def test_lines_that_are_no_mounts_are_none(lines: list[bytes]) -> None:
    found = list(cgroups.parse(b"\n".join(lines) + b"\n" + REAL, b"0::/\n"))
    assert found[-1:] == [Hierarchy(2, frozenset(), REAL_FOLDER, "/")]


@given(st.binary(max_size=30).filter(lambda name: not set(name) & set(b"\n\0/:")))
def test_our_own_group_may_have_any_name(name: bytes) -> None:
    (found,) = cgroups.parse(REAL, b"0::/nowhere/" + name + b"\n")
    assert found.folder == REAL_FOLDER
    assert os.fsencode(found.name) == b"/"
