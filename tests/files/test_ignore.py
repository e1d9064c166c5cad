"""Rules of .gitignore: the same files are left out as git leaves out."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from swell.files.ignore import PathSelection
from swell.files.pack import find_files

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
NAMES = ("a", "b", "ab", "a.o", "b.pt", "data", "x y", "[z]", "build", "deep", "#c", "!d")
LINES = (
    *("*.o", "!a.o", "/a", "a/", "data/", "build/*", "!build/ab", "**/deep", "deep/**", "a/**/b", "/data/*.pt", "?"),
    *(
        "[ab]",
        "[!a]",
        "\\#c",
        "\\!d",
        "# note",
        "",
        "x y",
        "x\\ y  ",
        "a*b",
        "*/b.pt",
        "!b",
        "**",
        "*",
        "[z",
        "!/ab/",
        "[^b]b",
    ),
)


def git_keeps(folder: Path) -> set[str]:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"], cwd=folder, check=True, capture_output=True
    )
    return {name for name in listed.stdout.decode().split("\0") if name}


def we_keep(folder: Path) -> set[str]:
    return {entry.path for entry in find_files(folder).entries if entry.kind == "file"}


@needs_git
@pytest.mark.parametrize("seed", range(60))
def test_the_same_files_are_left_out_as_git_leaves_out(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    folders = [tmp_path]
    for _ in range(8):
        folders.append(folders[draw.randrange(len(folders))] / draw.choice(NAMES))
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name in draw.sample(NAMES, 5):
            if not (folder / name).exists() and folder / name not in folders:
                (folder / name).touch()
    for folder in draw.sample(folders, 3):
        (folder / ".gitignore").write_text("\n".join(draw.sample(LINES, draw.randint(1, 5))))
    assert we_keep(tmp_path) == git_keeps(tmp_path), f"seed {seed}"


def test_swellignore_has_the_last_word_and_git_itself_is_never_sent(tmp_path: Path) -> None:
    for name in (".git/config", "a.o", "b.o", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.o\n")
    (tmp_path / ".swellignore").write_text("!a.o\nc\n.*ignore\n")
    assert we_keep(tmp_path) == {"a.o"}


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not PathSelection(["*" * 2000 + "x", "*a" * 20 + "x"]).has("a" * 200)


def test_a_selection_has_everything_below_a_folder_that_it_names() -> None:
    chosen = PathSelection(["results/", "*.pt"])
    assert [chosen.has(path) for path in ("results/a/b", "x/results/c", "m.pt", "a/m.pt", "results", "other/x")] == [
        *(True, True, True, True),
        *(False, False),
    ]
