"""What is told of one thing that was looked at?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"  # it works, but less well than it could
    PROBLEM = "problem"  # something will not work


@dataclass(frozen=True, slots=True)
class Finding:
    topic: str
    level: Level
    text: str
    next: str = ""  #: what to do; empty: nothing


def ok(topic: str, text: str) -> Finding:
    return Finding(topic, Level.OK, text)


def note(topic: str, text: str, following: str = "") -> Finding:
    return Finding(topic, Level.NOTE, text, following)


def problem(topic: str, text: str, following: str) -> Finding:
    return Finding(topic, Level.PROBLEM, text, following)
