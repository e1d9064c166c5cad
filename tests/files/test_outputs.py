"""Nothing comes back from a machine but what the job's patterns choose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swell.client.transfer import fetch_outputs
from swell.errors import Rejected
from swell.files.listing import EntryKind, FolderEntry, FolderListing, digest_of
from swell.files.outputs import OutputSelection, check_outputs

FILE, FOLDER, LINK = EntryKind.FILE, EntryKind.FOLDER, EntryKind.LINK
DATA = b"1"


def a_file(path: str) -> FolderEntry:
    return FolderEntry(path, FILE, size=1, chunks=(digest_of(DATA),))


def listing(*entries: FolderEntry) -> FolderListing:
    """With the folders above them."""
    above = {one.path[:at]: FolderEntry(one.path[:at], FOLDER) for one in entries for at in _slashes(one.path)}
    found = {**above, **{one.path: one for one in entries}}
    return FolderListing(tuple(found[path] for path in sorted(found)))


def _slashes(path: str) -> Iterator[int]:
    return (at for at, letter in enumerate(path) if letter == "/")


@pytest.mark.parametrize(
    ("patterns", "path", "is_chosen"),
    [
        (["results/"], "results/a", True),
        (["results/"], "other", False),
        (["results/"], "results", False),
        (["*"], "a", True),
        (["*"], ".bash_login", False),
        (["*", "**"], ".config/autostart/x", False),
        (["*.desktop"], ".config/autostart/x.desktop", False),
        (["x/.bashrc"], ".bashrc", False),
        ([".bash*"], ".bash_login", True),
        (["/.bash*"], ".bash_login", True),
        ([".x"], ".config/.x", False),
        ([".config/"], ".config/a", True),
        ([".config/**"], ".config/a/b", True),
        (["*"], "results/.hidden", True),
        ([], "a", False),
    ],
)
def test_a_path_that_begins_with_a_dot_is_an_output_only_where_a_pattern_names_it(
    patterns: list[str], path: str, is_chosen: bool
) -> None:
    assert OutputSelection(patterns).has(path) is is_chosen


UNCHOSEN = [
    ([], listing(a_file("a"))),
    ([], FolderListing(())),
    (["results/"], listing(a_file("results/a"), a_file(".bash_login"))),
    (["results/"], listing(a_file("results/a"), a_file(".ssh/authorized_keys"))),
    (["results/"], listing(a_file("results/a"), FolderEntry("src", FOLDER))),
    (["*"], listing(a_file(".bash_login"))),
    (["*"], listing(a_file("a"), FolderEntry(".ssh", FOLDER))),
    (["results/"], listing(FolderEntry("results", LINK, target=".ssh"))),
    (["results/"], listing(FolderEntry("results/a", LINK, target="../.ssh/id_rsa"))),
    (["results/"], listing(FolderEntry("results/a", LINK, target="../../.ssh"))),
    (["results/"], listing(a_file("results/../../x"))),
    (["*"], FolderListing((a_file("/etc/passwd"),))),
]


def test_links_among_the_outputs_are_taken() -> None:
    sent = listing(a_file("results/b/c"), FolderEntry("results/a", LINK, target="b"))
    check_outputs(sent, ["results/"])
    sent = listing(a_file("results/b"), FolderEntry("results/l/a", LINK, target="../b"))
    check_outputs(sent, ["results/"])


class Answers:
    """A server that gives whatever list a machine has sent."""

    def __init__(self, sent: FolderListing) -> None:
        self.data = sent.to_bytes()

    def raw(self, method: str, path: str, body: object = None, **_: Any) -> Any:
        data = self.data if "folders" in path else json.dumps([1]).encode() + b"\n" + DATA
        return replace_data(data)


def replace_data(data: bytes) -> Any:
    return type("Answer", (), {"data": data})()


def output(sent: FolderListing, patterns: list[str], node: str = "a") -> dict[str, Any]:
    return {"attempt": 1, "node": node, "folder": digest_of(sent.to_bytes()), "patterns": patterns}


@pytest.mark.parametrize(("patterns", "sent"), UNCHOSEN)
def test_fetch_writes_nothing_of_a_list_that_the_patterns_do_not_choose(
    tmp_path: Path, patterns: list[str], sent: FolderListing
) -> None:
    """A machine's token was enough to put .bash_login into the home folder of whoever fetched."""
    connection: Any = Answers(sent)
    with pytest.raises(Rejected):
        fetch_outputs(connection, [output(sent, patterns)], tmp_path, replaces=True)
    assert list(tmp_path.iterdir()) == []


def test_fetch_writes_what_the_patterns_choose(tmp_path: Path) -> None:
    sent = listing(a_file("results/a"))
    connection: Any = Answers(sent)
    assert fetch_outputs(connection, [output(sent, ["results/"])], tmp_path) == 1
    assert (tmp_path / "results/a").read_bytes() == DATA


@pytest.mark.parametrize("node", ["..", ".ssh", "a/b", "", "/etc"])
def test_a_machine_whose_name_begins_with_a_dot_is_no_folder(tmp_path: Path, node: str) -> None:
    sent = listing(a_file("results/a"))
    connection: Any = Answers(sent)
    rows = [output(sent, ["results/"], node), output(sent, ["results/"], "b")]
    with pytest.raises(Rejected, match="cannot be a folder"):
        fetch_outputs(connection, rows, tmp_path)
    assert list(tmp_path.iterdir()) == []
