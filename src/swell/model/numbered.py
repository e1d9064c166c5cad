"""Which variable is another number for each task of a role?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Numbered:
    """A variable that counts the tasks of its role, in their order.

    `Numbered("JOB_INDEX", each=4)` is 0 for the first four tasks, 1 for the next four;
    `Numbered("JOB_COMPLETION_INDEX", wrap=4)` is 0, 1, 2, 3 and then 0 again.
    """

    name: str
    first: int = 0
    each: int = 1  #: so many tasks in a row have the same number
    wrap: int | None = None  #: after so many numbers it begins again; None: never

    def of(self, task: int) -> int:
        number = task // self.each
        return self.first + (number if self.wrap is None else number % self.wrap)

    def to_document(self) -> dict[str, Any]:
        return asdict(self)
