"""Which files of a folder are left out? Those that .gitignore and .swellignore name, as git reads its own.

Rules of a folder count below it. Of several that fit the last one decides: those of a deeper folder come after those
above it, those of .swellignore after those of .gitignore. A folder that is left out is not looked into.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

IGNORE_FILES = (".gitignore", ".swellignore")
ALWAYS = (".git/",)  # its history, and whatever tokens its configuration has


LINE_MAX = 4096  # longer than any path
ANY = re.compile(r".", re.DOTALL)  # one letter, or one name
RUN = None  # any number of letters, or of names

Letters = tuple[re.Pattern[str] | None, ...]  # each fits one letter; `RUN` fits any number
Names = tuple[Letters | None, ...]  # the same for the names of a path


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of such a file."""

    names: Names
    is_anchored: bool  #: to the folder of the file; otherwise it is about the last name of a path
    only_folders: bool
    is_kept: bool  #: it begins with '!'

    def fits(self, path: str) -> bool:
        """`path`: below the folder of the file."""
        names = path.split("/")
        return _fits(names if self.is_anchored else names[-1:], self.names, _fits_name)


def parse_rules(text: str) -> tuple[IgnoreRule, ...]:
    return tuple(rule for line in text.split("\n") if len(line) <= LINE_MAX and (rule := _parse_rule(line)) is not None)


def _parse_rule(line: str) -> IgnoreRule | None:
    """None: it is empty, a comment, or nothing that can be read."""
    line = _without_blanks(line.removesuffix("\r"))
    if not line or line.startswith("#"):
        return None
    is_kept = line.startswith("!")
    line = line[is_kept:]
    only_folders = line.endswith("/")
    line = line.removesuffix("/") if only_folders else line
    if not line:
        return None
    is_anchored = "/" in line
    parts = line.removeprefix("/").split("/")
    try:
        names = tuple(_read_names(parts)) if is_anchored else (_read_name(line),)
    except re.error:  # such as a range that runs backwards, which fits nothing
        return None
    return IgnoreRule(names, is_anchored, only_folders, is_kept)


def _read_names(parts: list[str]) -> Iterator[Letters | None]:
    for number, part in enumerate(parts):
        if part != "**":
            yield _read_name(part)
        elif number and number == len(parts) - 1:
            yield from ((RUN, ANY, RUN), RUN)  # everything inside, at least one
        else:
            yield RUN


def _without_blanks(line: str) -> str:
    """At its end, unless the last one is escaped."""
    bare = line.rstrip(" ")
    slashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if slashes % 2 and len(bare) < len(line) else bare


def _read_name(pattern: str) -> Letters:
    """Stars next to each other are one."""
    found: list[re.Pattern[str] | None] = []
    at = 0
    while at < len(pattern):
        if pattern[at] == "*":
            if found[-1:] != [RUN] or not found:
                found.append(RUN)
            at += 1
        elif pattern[at] == "?":
            found.append(ANY)
            at += 1
        elif pattern[at] == "[" and (end := _class_end(pattern, at)):
            found.append(re.compile(_class(pattern[at + 1 : end]), re.DOTALL))
            at = end + 1
        else:
            at += pattern[at] == "\\" and at + 1 < len(pattern)
            found.append(re.compile(re.escape(pattern[at])))
            at += 1
    return tuple(found)


def _fits_name(name: str, letters: Letters | None) -> bool:
    assert letters is not None
    return _fits(name, letters, lambda letter, one: one is not None and one.fullmatch(letter) is not None)


def _fits(items: Sequence[str], pattern: Sequence[T | None], fits_one: Callable[[str, T | None], bool]) -> bool:
    """With one place to go back to, so that no pattern takes longer than its length times that of the path."""
    at = place = 0
    back: tuple[int, int] | None = None
    while at < len(items):
        if place < len(pattern) and pattern[place] is RUN:
            back = at, place = at, place + 1
        elif place < len(pattern) and fits_one(items[at], pattern[place]):
            at, place = at + 1, place + 1
        elif back is not None:
            back = at, place = back[0] + 1, back[1]
        else:
            return False
    return all(one is RUN for one in pattern[place:])


def _class_end(pattern: str, start: int) -> int:
    """Where its bracket closes; 0: it does not."""
    first = start + 2 if pattern[start + 1 : start + 2] in ("!", "^") else start + 1
    end = pattern.find("]", first + 1)
    return max(end, 0)


def _class(inside: str) -> str:
    negated = inside[:1] in ("!", "^")
    body = inside[negated:].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    body = body.replace("&&", "&\\&").replace("||", "|\\|").replace("~~", "~\\~")
    return f"[{'^' if negated else ''}{body}]"


class IgnoreRules:
    """Of a folder and of those above it."""

    def __init__(self, levels: tuple[tuple[str, tuple[IgnoreRule, ...]], ...] = ()) -> None:
        self._levels = levels or (("", parse_rules("\n".join(ALWAYS))),)  #: by the folder they count below

    def below(self, folder: str, texts: Iterable[str]) -> IgnoreRules:
        """`texts`: of the files in it that have rules."""
        rules = tuple(rule for text in texts for rule in parse_rules(text))
        return IgnoreRules((*self._levels, (f"{folder}/" if folder else "", rules))) if rules else self

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        for prefix, rules in reversed(self._levels):
            inside = path.removeprefix(prefix)
            for rule in reversed(rules):
                if (is_folder or not rule.only_folders) and rule.fits(inside):
                    return not rule.is_kept
        return False


class PathSelection:
    """What the patterns of .gitignore choose, and everything below a folder that they choose."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules = IgnoreRules((("", parse_rules("\n".join(patterns))),))

    def has(self, path: str) -> bool:
        above = (path[:at] for at, letter in enumerate(path) if letter == "/")
        if any(self._rules.leaves_out(folder, is_folder=True) for folder in above):
            return True
        return self._rules.leaves_out(path, is_folder=False)
