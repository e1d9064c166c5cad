"""Which indices of a launch are still to begin on this machine?"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from swell.model.quantity import IndexSet


class Backlog:
    """In order, except that what was put back comes first. An array may have a million: they are not listed."""

    def __init__(self, indices: IndexSet) -> None:
        self.indices = indices  #: all that are to be done here, begun or not
        self.left = len(indices)
        self._pending: Iterator[int] = iter(indices)
        self._again: list[int] = []  #: claimed by an earlier worker process, and never begun

    def pass_over(self, known: Collection[int]) -> None:
        """These have a folder already; who finds that one never began puts it back."""
        self.left -= sum(index in self.indices for index in known)
        self._pending = (index for index in self.indices if index not in known)

    def take(self) -> int:
        self.left -= 1
        return self._again.pop() if self._again else next(self._pending)

    def put_back(self, index: int) -> None:
        self._again.append(index)
        self.left += 1

    def hold(self, indices: IndexSet, begun: Collection[int]) -> None:
        """Of an array that is dealt: these are to be done here. What has begun goes on, whoever should have it."""
        pending = [index for index in indices if index not in begun]
        self.indices, self.left, self._pending, self._again = indices, len(pending), iter(pending), []

    def take_all(self) -> list[int]:
        taken = [*self._again, *self._pending]
        self.clear()
        return taken

    def clear(self) -> None:
        """Nothing more begins."""
        self.left, self._pending, self._again = 0, iter(()), []
