"""stub until merge"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PodLog:
    attempt: Any
    index: int
    namespace: str
    pod: str
    uid: str


class LogKeeper:
    def __init__(self, *a: Any) -> None: ...
    def close(self) -> None: ...
    def follow(self, source: PodLog) -> None: ...
    def erase(self, attempt: Any) -> None: ...
    def size(self, attempt: Any, index: int) -> int | None: ...
    def read(self, attempt: Any, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        return offset, b""

    def offset_at(self, attempt: Any, index: int, moment: float) -> int | None: ...
