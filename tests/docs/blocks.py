"""Which commands do the documents show, and with which output?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMANDS = ("console", "sh", "bash")  # after the three backticks: commands, and perhaps what they print
NO_COMMANDS = ("text", "python", "yaml", "json", "toml", "ini", "promql")
PROMPT = "$ "
_FENCE = re.compile(r"\s*```+\s*(\S*)")
_PROGRAMS = "swell|cl-worker-manager|run-scheduler|genai-manager|kubectl|helm|make|sbatch|srun|podman|docker|pip"
_RUNS = re.compile(rf"(^|\s{{2,}}|\$ )(sudo )?({_PROGRAMS}) [a-z-]+( (?!/)|$)")
_COMMENT = re.compile(r"\s+#\s.*$")


@dataclass(frozen=True, slots=True)
class Shown:
    """One command as it is printed, and the lines below it."""

    command: str
    output: tuple[str, ...] = ()

    @property
    def bare(self) -> str:
        """Without the remark behind it."""
        return _COMMENT.sub("", self.command)


@dataclass(frozen=True, slots=True)
class Block:
    file: str  #: below the root of the repository
    line: int  #: of its first fence
    language: str
    lines: tuple[str, ...]

    @property
    def shown(self) -> tuple[Shown, ...]:
        """With prompts, what has none is output; without any prompt every line is a command."""
        if any(line.startswith(PROMPT) for line in self.lines):
            return tuple(_with_prompts(self.lines))
        return tuple(Shown(line) for line in _whole(self.lines) if line.strip() and not line.lstrip().startswith("#"))

    @property
    def key(self) -> str:
        """How the registry calls it: it may move within its file, and what follows its first command may change."""
        first = self.shown[0].bare.partition(" \\\n")[0] if self.shown else ""
        return f"{self.file}: {first}"


def _whole(lines: tuple[str, ...]) -> Iterator[str]:
    """A command goes on where its line ends in a backslash."""
    whole = ""
    for line in lines:
        whole += line
        if not line.endswith("\\"):
            yield whole
            whole = ""
        else:
            whole += "\n"
    if whole:
        yield whole


def runs_something(line: str) -> bool:
    """Does it run a program of ours or of a cluster's, also behind words that say where it is typed?"""
    return _RUNS.search(line) is not None


def _with_prompts(lines: tuple[str, ...]) -> Iterator[Shown]:
    command, output = "", list[str]()
    for line in lines:
        if line.startswith(PROMPT):
            if command:
                yield Shown(command, tuple(output))
            command, output = line.removeprefix(PROMPT), []
        elif line.strip():
            output.append(line)
    yield Shown(command, tuple(output))


def documents() -> list[Path]:
    """What users read; decisions tell of the past."""
    docs = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in path.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs, *sorted((ROOT / "examples").rglob("README.md"))]


def all_blocks() -> list[Block]:
    return [block for path in documents() for block in blocks_of(path.read_text(), str(path.relative_to(ROOT)))]


def command_blocks() -> list[Block]:
    return [block for block in all_blocks() if block.language in COMMANDS]


def blocks_of(text: str, file: str) -> Iterator[Block]:
    language, first, lines = None, 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif language is None:
            language, first, lines = fence[1], number, []
        else:
            yield Block(file, first, language, tuple(lines))
            language = None


def first_words(line: str, count: int = 6) -> list[str]:
    """What a line of output is recognized by: numbers, hashes and whatever comes later differ from run to run."""
    return re.sub(r"\b[0-9a-f]{8}\b|\d[\d.,]*", "#", line).split()[:count]


def missing_lines(shown: tuple[str, ...], printed: str) -> list[str]:
    """Lines of a document that what was really printed does not have, in that order."""
    really = iter([first_words(line) for line in printed.splitlines()])
    return [line for line in shown if first_words(line) not in really]
