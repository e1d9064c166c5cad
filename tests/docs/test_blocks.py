"""No block of commands in the documents is left to rot: each is registered, and says what runs it."""

from __future__ import annotations

import re

import pytest

from .blocks import (
    COMMANDS,
    NO_COMMANDS,
    ROOT,
    Shown,
    all_blocks,
    blocks_of,
    command_blocks,
    missing_lines,
    runs_something,
)
from .recipes import Tier
from .registry import RECIPES


def test_every_block_says_what_it_holds() -> None:
    known = (*COMMANDS, *NO_COMMANDS)
    unclear = [f"{block.file}:{block.line}" for block in all_blocks() if block.language not in known]
    assert unclear == [], f"write ```console above commands, ```text above a picture; known are {', '.join(known)}"


#: pictures in which a program is named
PICTURES = ("docs/architecture.md",)


def test_no_command_hides_in_a_block_of_text() -> None:
    """Four blocks of workers and pools were marked so, and nothing ran them."""
    hidden = [
        f"{block.file}:{block.line}: {line}"
        for block in all_blocks()
        if block.language == "text" and block.file not in PICTURES
        for line in block.lines
        if runs_something(line)
    ]
    assert hidden == [], "mark it ```console, or write the program's name in a sentence"


def test_every_block_of_commands_is_run_by_a_test() -> None:
    missing = [
        f"{block.file}:{block.line} is run by no test. Add to RECIPES in tests/docs/registry.py:\n"
        f"    {block.key!r}: Recipe(tier=Tier.PRIVATE),  # or BOX, CLUSTER; files={{...}} that it presupposes"
        for block in command_blocks()
        if block.key not in RECIPES
    ]
    assert missing == [], "\n" + "\n".join(missing)


def test_nothing_is_registered_that_no_document_shows() -> None:
    assert sorted(RECIPES.keys() - {block.key for block in command_blocks()}) == []


def test_each_block_is_one_of_its_kind() -> None:
    keys = [block.key for block in command_blocks()]
    assert sorted({key for key in keys if keys.count(key) > 1}) == []


def test_what_is_not_run_here_says_why() -> None:
    """Printed with `pytest -s`: what readers type and no test of this folder does."""
    untold = []
    for key, recipe in RECIPES.items():
        if recipe.tier in (Tier.ELSEWHERE, Tier.NEEDS):
            print(f"{recipe.tier}: {key}: {recipe.why}")
        for number, why in recipe.not_run.items():
            print(f"not run: {key}, command {number + 1}: {why}")
        has_reason = recipe.tier not in (Tier.ELSEWHERE, Tier.NEEDS) or len(recipe.why.split()) > 3
        if not has_reason or not all(len(why.split()) > 3 for why in recipe.not_run.values()):
            untold.append(key)
    assert untold == []


def test_every_target_of_make_that_is_shown_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = [one.bare for block in command_blocks() for one in block.shown if one.command.startswith("make ")]
    assert [command for command in shown if command.split()[1] not in targets] == []
    assert len(shown) > 5


# -- how blocks are read ---------------------------------------------------------------------------------------------

TEXT = """\
```console
$ swell why 3     # says why
job 3 is queued
  it wants 1 CPU
$ swell ps
```
```sh
make demo   # a remark
            # and more of it
make test
```
"""


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("swell pool ps", True),
        ("$ swell ps", True),
        ("on every other machine      swell worker --server https://10.0.0.1:8443", True),
        ("cl-worker-manager --server https://box.lab:8443 \\", True),
        ("sudo swell service install", True),
        ("swell: serving /home/ann/.local/state/swell", False),
        ("job 3 runs on swell nodes", False),
        ("                          swell run / submit / API", False),
    ],
)
def test_a_line_that_runs_a_program_is_told_from_what_one_prints(line: str, runs: bool) -> None:
    assert runs_something(line) == runs


def test_a_command_goes_on_behind_a_backslash() -> None:
    [one] = blocks_of("```console\nswell run \\\n    -- true\nswell ps\n```\n", "x.md")
    assert [shown.command for shown in one.shown] == ["swell run \\\n    -- true", "swell ps"]


def test_commands_are_told_from_what_they_print() -> None:
    one, two = blocks_of(TEXT, "x.md")
    assert one.shown == (
        Shown("swell why 3     # says why", ("job 3 is queued", "  it wants 1 CPU")),
        Shown("swell ps"),
    )
    assert [shown.bare for shown in two.shown] == ["make demo", "make test"]
    assert (one.key, two.key, two.line) == ("x.md: swell why 3", "x.md: make demo", 7)


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        ("noise\njob 12 is queued\nmore\n  it wants 2 CPUs", ["  it wants 1 CPU"]),
        ("job 12 is queued\n  it wants 20 CPU", []),
        ("  it wants 1 CPU\njob 3 is queued", ["  it wants 1 CPU"]),
        ("", ["job 3 is queued", "  it wants 1 CPU"]),
    ],
)
def test_output_is_compared_by_its_first_words_and_without_its_numbers(printed: str, missing: list[str]) -> None:
    assert missing_lines(("job 3 is queued", "  it wants 1 CPU"), printed) == missing
