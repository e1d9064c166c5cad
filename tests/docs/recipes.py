"""What does a block of commands need to be run by a test? See `registry.py` for which block needs what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Tier(StrEnum):
    PRIVATE = "private"  # a server of one's own
    BOX = "box"  # root
    CLUSTER = "cluster"  # a real Kubernetes on this machine
    INSTALLED = "installed"  # a cluster in which helm has installed Swell: tests/deploy/test_installed.py
    ELSEWHERE = "elsewhere"  # run by something that is not a test of this folder; `why` says by what
    NEEDS = "needs"  # cannot be run where tests run; `why` says what is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    tier: Tier
    why: str = ""  #: of ELSEWHERE and NEEDS
    files: Mapping[str, str] = field(default_factory=dict)  #: what the reader has in their folder
    replaced: Mapping[str, str] = field(default_factory=dict)  #: what only the reader has → what the test has for it
    before: Mapping[int, Callable[[Any], None]] = field(default_factory=dict)  #: what happened before that command
    codes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  #: of that command; otherwise 0
    not_run: Mapping[int, str] = field(default_factory=dict)  #: that command, and who runs it instead
    has_server: bool = True  #: one runs already; no: the block starts it
    has_containers: bool = False  #: its server knows a runtime that works where tests run
