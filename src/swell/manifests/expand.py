"""What does `$(NAME)` stand for in a container's words and variables?

As in Kubernetes: `$(NAME)` is the variable's value, `$$` is a dollar, and a name nobody knows stays as it is written.
One that is another number for each task cannot be written out before they are started, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

from swell.errors import Rejected
from swell.model.job import Numbered

REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
ESCAPE = re.compile(r"\$\$")
#: Of one container, variables and words together. Twenty variables that each name the one before twice stand for
#: a million times the first, so what is written out is counted, not what is written.
EXPANDED_MAX = 256 * 1024


class Expansion:
    """Writes out one container's references, as long as there is room."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._room = EXPANDED_MAX

    def expand(self, text: str, variables: Mapping[str, str | Numbered]) -> str:
        pieces = []
        end = 0
        for match in _references(text):
            pieces += [self._take(text[end : match.start()]), self._take(self._meaning(match, variables))]
            end = match.end()
        return "".join((*pieces, self._take(text[end:])))

    def _meaning(self, match: re.Match[str], variables: Mapping[str, str | Numbered]) -> str:
        value = "$" if match[0] == "$$" else variables.get(match[1], match[0])
        if isinstance(value, Numbered):
            raise Rejected(
                f"{self._where}: {match[0]} is another number for each task, so it cannot be written out beforehand; "
                f'read the variable when it runs, as in [sh, -c, "train --rank=${match[1]}"]'
            )
        return value

    def _take(self, piece: str) -> str:
        self._room -= len(piece)
        if self._room < 0:
            raise Rejected(
                f"{self._where}: its command and variables have more than {EXPANDED_MAX} characters when every "
                "$(NAME) is written out; put long text into a file"
            )
        return piece


def _references(text: str) -> Iterator[re.Match[str]]:
    """After the last parenthesis only `$$` is left. Looking for more there would take the square of the length."""
    last = text.rfind(")") + 1
    return chain(REFERENCE.finditer(text, 0, last), ESCAPE.finditer(text, last))
