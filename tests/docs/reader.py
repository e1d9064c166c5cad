"""Somebody who has read a document types its commands, one after the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .blocks import Block, command_blocks, missing_lines
from .recipes import Recipe, Tier
from .registry import RECIPES

COMMAND_S_MAX = 120.0  # each of them; a loaded machine is slow


def registered(tier: Tier) -> list[Block]:
    """What a test of this tier has to run; what is not registered fails elsewhere, with what to do."""
    return [block for block in command_blocks() if block.key in RECIPES and RECIPES[block.key].tier is tier]


class Reader:
    """In a folder of their own, with `swell` and `python` on their PATH."""

    def __init__(self, folder: Path, env: Mapping[str, str], known: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = {**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
        self._known = {"folder": str(folder), **known}  #: what the names in braces stand for

    def follow(self, block: Block, recipe: Recipe, stage: Any) -> None:
        """Types all of it; each command must end as it should and print what the document shows."""
        for name, text in recipe.files.items():
            (self._folder / name).write_text(text)
        for number, shown in enumerate(block.shown):
            if number in recipe.before:
                recipe.before[number](stage)
            if number in recipe.not_run:
                continue
            done = self.type(self._replaced(shown.command, recipe))
            where = f"{block.file}:{block.line}: {shown.bare}"
            assert done.returncode in recipe.codes.get(number, (0,)), (where, done.stdout)
            expected = tuple(self._replaced(line, recipe) for line in shown.output)
            missing = missing_lines(expected, done.stdout)
            assert missing == [], (where, missing, done.stdout)

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        """What it says on both ways comes as one, in the order in which a terminal would show it."""
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )

    def _replaced(self, text: str, recipe: Recipe) -> str:
        for theirs, ours in recipe.replaced.items():
            for name, value in self._known.items():
                ours = ours.replace(f"{{{name}}}", value)
            text = text.replace(theirs, ours)
        return text
