"""What may a machine send back of a job?

Whoever has a worker's token can send a list of files, so the server and `swell fetch` compare it with the patterns
that the job was submitted with; a list that has anything else is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.errors import Rejected
from swell.files.ignore import PathSelection, parse_rules
from swell.files.listing import EntryKind, FolderListing, shown


class OutputSelection:
    """What the patterns choose. As in a shell, `*` chooses nothing whose path begins with a dot: a pattern names it."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._chosen = PathSelection(patterns)
        self._named = [
            (rule, PathSelection([pattern]))
            for pattern in patterns
            if (first := pattern.removeprefix("/").split("/")[0]).startswith(".")
            for rule in parse_rules(first)
        ]

    def has(self, path: str) -> bool:
        return self._chosen.has(path) and (not path.startswith(".") or self._is_named(path))

    def _is_named(self, path: str) -> bool:
        first = path.split("/")[0]
        return any(rule.fits(first) and selection.has(path) for rule, selection in self._named)


def check_outputs(listing: FolderListing, patterns: Sequence[str]) -> None:
    """Raises `Rejected` for what the patterns do not choose. Of folders, only those above what they choose."""
    if not patterns:
        raise Rejected("the job names no outputs; nothing is taken back from its machines")
    selection, above = OutputSelection(patterns), set[str]()
    paths = {entry.path for entry in listing.entries}
    for entry in listing.entries:
        if entry.kind is EntryKind.FOLDER:
            continue
        if not selection.has(entry.path):
            raise Rejected(f"{shown(entry.path)} is none of the job's outputs; the patterns are {_words(patterns)}")
        if entry.kind is EntryKind.LINK and (target := _meant(entry.path, entry.target)) not in paths:
            raise Rejected(f"the link {shown(entry.path)} points to {shown(target)}, which is not among the outputs")
        here = entry.path
        while (here := here.rpartition("/")[0]) and here not in above:
            above.add(here)
    for entry in listing.entries:
        if entry.kind is EntryKind.FOLDER and entry.path not in above:
            raise Rejected(f"the folder {shown(entry.path)} has none of the job's outputs")


def _meant(path: str, target: str) -> str:
    """Where a link of a checked listing points: '..' is only in front."""
    names = path.split("/")[:-1]
    for name in target.split("/"):
        if name == "..":
            names = names[:-1]
        elif name not in ("", "."):
            names.append(name)
    return "/".join(names)


def _words(patterns: Sequence[str]) -> str:
    return shown(", ".join(patterns))
