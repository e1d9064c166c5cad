"""A folder becomes a listing and chunks, and a folder again; what would lead out of it is refused on both sides."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.errors import Rejected, TooMany
from swell.files.chunk_store import ChunkStore
from swell.files.listing import (
    CHUNK_BYTES,
    ENTRIES_MAX,
    FOLDER_BYTES_MAX,
    EntryKind,
    FolderEntry,
    FolderListing,
    cut,
    digest_of,
    parse_listing,
)
from swell.files.pack import find_files, read_chunks, read_listing
from swell.files.unpack import unpack
from swell.machine.removal import remove_tree
from swell.model.job import AttemptId

FILE, FOLDER, LINK = EntryKind.FILE, EntryKind.FOLDER, EntryKind.LINK
ONE = digest_of(b"1")


def a_file(path: str, **others: object) -> FolderEntry:
    return replace(FolderEntry(path, FILE, size=1, chunks=(ONE,)), **others)


def as_sent(*entries: FolderEntry) -> bytes:
    """Whatever somebody may send: not checked, not sorted."""
    rows = [[one.path, str(one.kind), one.is_executable, one.size, list(one.chunks), one.target] for one in entries]
    return json.dumps([1, rows]).encode()


def send(store: ChunkStore, folder: Path) -> str:
    found = find_files(folder)
    listing = read_listing(found)
    for part in read_chunks(found, listing, set(store.missing(list(listing.chunks())))):
        store.put(part)
    parts = cut(listing.to_bytes())
    return store.commit([store.put(part) for part in parts])[0]


def tree(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        if path.is_symlink():
            what: object = path.readlink()
        else:
            what = (bool(about.st_mode & stat.S_IXUSR), path.read_bytes()) if path.is_file() else None
        found[str(path.relative_to(folder))] = what
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_folder_arrives_as_it_was_and_is_the_same_bytes_every_time(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    source, store = tmp_path / "source", ChunkStore(tmp_path / "store")
    folders = [source]
    for number in range(12):
        above = draw.choice(folders)
        if draw.random() < 0.4:
            folders.append(above / f"d{number}")
        above.mkdir(parents=True, exist_ok=True)
        name = above / f"f é{number}"
        name.write_bytes(draw.randbytes(draw.choice([0, 1, 1000, CHUNK_BYTES, CHUNK_BYTES * 2 + 7])))
        name.chmod(draw.choice([0o644, 0o755]))
        (above / f"l{number}").symlink_to(name.name)
    for folder in folders:
        folder.mkdir(exist_ok=True)
    id_ = send(store, source)
    assert send(store, source) == id_
    target = tmp_path / "target"
    target.mkdir()
    unpack(store.listing(id_), target, store.get)
    assert tree(target) == tree(source), f"seed {seed}"


def test_only_what_is_missing_is_sent(tmp_path: Path) -> None:
    source, store = tmp_path / "source", ChunkStore(tmp_path / "store")
    source.mkdir()
    (source / "a").write_bytes(b"a" * CHUNK_BYTES + b"b")
    (source / "same").write_bytes(b"a" * CHUNK_BYTES)
    send(store, source)
    (source / "a").write_bytes(b"a" * CHUNK_BYTES + b"c")
    listing = read_listing(find_files(source))
    assert store.missing(list(listing.chunks())) == [digest_of(b"c")]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((a_file("../x"),), "leaves its folder"),
        ((a_file("/etc/passwd"),), "leaves its folder"),
        ((a_file("a/../../x"),), "leaves its folder"),
        ((a_file("a//b"),), "leaves its folder"),
        ((a_file(""),), "leaves its folder"),
        ((a_file("a\0b"),), "none that a file can have"),
        ((a_file("a" * 256),), "none that a file can have"),
        ((a_file("a/b"),), "lies in 'a', which is no folder"),
        ((FolderEntry("a", LINK, target="/etc"), a_file("a/b")), "is absolute"),
        (
            (FolderEntry("a", LINK, target="b"), a_file("a/b"), FolderEntry("b", FOLDER)),
            "lies in 'a', which is no folder",
        ),
        ((FolderEntry("a", LINK, target="../x"),), "points out of the folder"),
        ((FolderEntry("a", LINK, target="b/../../x"),), "'..' behind a name"),
        ((FolderEntry("a", LINK, target=""),), "with what only another kind has"),
        ((a_file("a"), a_file("a")), "twice"),
        ((a_file("b"), a_file("a")), "not sorted"),
        ((a_file("a", size=FOLDER_BYTES_MAX),), "1 parts are not the"),
        ((a_file("a", size=-1, chunks=()),), "parts are not the"),
        ((a_file("a", chunks=("../../x",)),), "has no SHA-256"),
        ((FolderEntry("a", FOLDER, size=1, chunks=(ONE,)),), "parts are not the"),
        ((a_file("a\ud800"),), "is not UTF-8"),
    ],
)
def test_what_leads_out_or_cannot_be_is_refused(tmp_path: Path, entries: tuple[FolderEntry, ...], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        parse_listing(as_sent(*entries))
    with pytest.raises(Rejected, match=said):
        unpack(FolderListing(entries), tmp_path, lambda _: b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["device", "hardlink", "fifo", "", "FILE"])
def test_nothing_but_files_folders_and_links_can_be_said(kind: str) -> None:
    sent = as_sent(a_file("a")).replace(b'"file"', json.dumps(kind).encode())
    with pytest.raises(Rejected, match="cannot be read"):
        parse_listing(sent)


@pytest.mark.parametrize(
    "sent", [b"", b"[]", b"[1]", b"{}", b"[1, [[]]]", b"[1, [1]]", b"[2, []]", b"[" * 100_000, b"\xff"]
)
def test_what_is_no_listing_is_refused(sent: bytes) -> None:
    with pytest.raises(Rejected):
        parse_listing(sent)


def test_a_small_list_of_a_huge_folder_is_refused() -> None:
    """A bomb: the same chunk ten thousand times in each of many files."""
    each = (digest_of(b"0" * CHUNK_BYTES),) * 2000
    bomb = [FolderEntry(f"f{number:02}", FILE, size=2000 * CHUNK_BYTES, chunks=each) for number in range(12)]
    with pytest.raises(Rejected, match="more than 10 GB"):
        parse_listing(as_sent(*bomb))


def test_too_many_entries_are_refused_before_they_are_looked_at() -> None:
    with pytest.raises(Rejected, match="more than 100000 files and folders"):
        parse_listing(json.dumps([1, [0] * (ENTRIES_MAX + 1)]).encode())


def test_a_folder_of_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for number in range(3):
        with (tmp_path / f"hole{number}").open("wb") as file:
            file.truncate(FOLDER_BYTES_MAX // 2)
    with pytest.raises(Rejected, match="more than 10 GB of files, the most that is sent"):
        find_files(tmp_path)


def test_what_cannot_be_sent_is_refused_by_name(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(tmp_path / "sock"))
        with pytest.raises(Rejected, match="'sock' is a device, a pipe or a socket"):
            find_files(tmp_path)
    (tmp_path / "sock").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Rejected, match="'pipe' is a device"):
        find_files(tmp_path)
    (tmp_path / ".swellignore").write_text("pipe\n")
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(Rejected, match="the link 'out' -> '/etc' is absolute"):
        find_files(tmp_path)


def test_a_file_that_changes_while_it_is_sent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    found = find_files(tmp_path)
    listing = read_listing(found)
    (tmp_path / "a").write_bytes(b"behind")
    with pytest.raises(Rejected, match="'a' changed while it was read"):
        list(read_chunks(found, listing, set(listing.chunks())))


def test_a_chunk_that_is_not_what_it_says_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="is not what its SHA-256 says"):
        unpack(FolderListing((a_file("a"),)), tmp_path, lambda _: b"2")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_through_links_that_are_there(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "d").symlink_to(outside)
    with pytest.raises(Rejected, match="'d' is no folder here, or a link"):
        unpack(FolderListing((FolderEntry("d", FOLDER), a_file("d/a"))), target, lambda _: b"1", replaces=True)
    (target / "f").symlink_to(outside / "f")
    unpack(FolderListing((a_file("f"),)), target, lambda _: b"1", replaces=True)
    assert list(outside.iterdir()) == []
    assert (target / "f").read_bytes() == b"1"


def test_a_store_takes_no_more_than_its_limit(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path, lambda: 10)
    store.put(b"12345678")
    store.put(b"12345678")
    with pytest.raises(TooMany, match="at most 10 are kept; delete jobs"):
        store.put(b"123")


def test_a_folder_whose_parts_were_not_sent_is_refused(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path)
    part = store.put(FolderListing((a_file("a"),)).to_bytes())
    with pytest.raises(Rejected, match="1 parts of the folder were not sent"):
        store.commit([part])


def test_what_no_remembered_job_uses_goes_after_a_day(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path / "store")
    ids = []
    for number in range(3):
        source = tmp_path / f"{number}"
        source.mkdir()
        (source / "own").write_text(str(number))
        (source / "shared").write_text("all")
        ids.append(send(store, source))
    store.note_uses([(1, ids[0]), (2, ids[1])])
    store.note_output(AttemptId(1, 2), "n", ids[2], store.listing(ids[2]))
    store.sweep(lambda jobs: jobs, unused_s=3600)
    assert all(store.has_folder(one) for one in ids)
    store.sweep(lambda jobs: [job for job in jobs if job != 2], unused_s=-1)
    assert [store.has_folder(one) for one in ids] == [True, False, True]
    assert store.missing([digest_of(b"0"), digest_of(b"1"), digest_of(b"2"), digest_of(b"all")]) == [digest_of(b"1")]
    store.sweep(lambda jobs: [], unused_s=-1)
    assert store.size == 0
    assert store.outputs(1) == []


def make_deep(root: Path, depth: int) -> None:
    """By descriptors: no path is that long."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 20, dir_fd=here)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


@pytest.mark.parametrize("wanted", [None, lambda _: True])
@pytest.mark.parametrize("depth", [101, 3000])
def test_a_folder_that_is_too_deep_is_refused_by_name(tmp_path: Path, depth: int, wanted: Any) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make_deep(root, depth)
    with pytest.raises(Rejected, match="lies more than 100 folders deep") as refused:
        find_files(root, wanted=wanted)
    assert len(str(refused.value)) < 500
    while not remove_tree(tmp_path, "root"):
        pass


def test_names_too_long_for_the_system_are_refused_by_name(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("n" * 250, dir_fd=here)
        inner = os.open("n" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    with pytest.raises(Rejected, match="File name too long") as refused:
        find_files(root)
    assert len(str(refused.value)) < 500
    while not remove_tree(tmp_path, "root"):
        pass


def test_a_list_with_a_deep_path_is_refused() -> None:
    names = ["d"] * 101
    folders = [FolderEntry("/".join(names[:depth]), FOLDER) for depth in range(1, 101)]
    with pytest.raises(Rejected, match="lies more than 100 folders deep"):
        parse_listing(as_sent(*folders, a_file("/".join(names))))


def test_what_is_not_wanted_takes_no_memory(tmp_path: Path) -> None:
    for number in range(20_000):
        (tmp_path / f"{number:0100}").touch()
    tracemalloc.start()
    assert find_files(tmp_path, wanted=lambda _: False).entries == ()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_lists_of_folders_count_against_the_limit_and_are_refused_above_it(tmp_path: Path) -> None:
    """A list may have 48 MiB, and a user may send any number of them."""
    store = ChunkStore(tmp_path, lambda: 20_000)

    def commit_many() -> None:
        for number in range(1000, 1100):
            parts = cut(FolderListing(tuple(a_file(f"{number}-{one}") for one in range(10, 30))).to_bytes())
            store.commit([store.put(part) for part in parts])

    store.put(b"1")
    with pytest.raises(TooMany, match="the files of your jobs take"):
        commit_many()
    kept = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert list((tmp_path / "folders").iterdir()) != []
    assert (store.size, kept <= 20_000) == (kept, True)
    assert ChunkStore(tmp_path).size == kept
