"""Help, messages and documents use the words of docs/glossary.md, and no phrase that says less than it seems to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Where sentences stand that somebody reads: users, administrators in a log, or whoever trains.
ROOMS = ("src/swell", "sdk/src")
#: phrase → what is said instead
BANNED = {
    "lines up again": "is queued again",
    "line up again": "are queued again",
    "gives room back": "frees its resources",
    "give room back": "free resources",
    "gives its room back": "frees its resources",
    "gave its room back": "freed its resources",
    "give its room back": "free its resources",
    "goes on as": "continues as",
    "running jobs go on": "running jobs keep running",
    "jobs go on": "jobs keep running",
    "takes them up": "takes them over",
    "nobody vouches": "not signed by a trusted CA",
    "who vouches": "the CA that signed it",
    "in the name of": "as the user",
    "everybody's": "all users'",
    "without a word": "without a subcommand",
    "so many at once": "at most N at once",
    "at most so many": "at most N",
    "one life of": "one attempt of",
    "which life": "which attempt",
    "has offered itself": "has registered",
    "is remembered": "is stored",
    "writes it anew": "rewrites it",
    "starts it anew": "restarts it",
    "to be seen here": "visible here",
    "all the same": "anyway",
    "is taken on": "is accepted",
    "be taken on": "be started",
    "taken up yet": "taken over yet",
    "goes on:": "continues:",
    "and so do we": "and reports are retried",
    "left no word": "printed nothing",
    "nobody else says": "none is given",
    "brought to the disk": "flushed to disk",
    "runs already": "is already running",
    "counts as absent": "is treated as missing",
    "scaled to {width} by hand": "scaled to N on request",
    "giving back room": "freeing resources",
    "their room back": "their resources",
    "the rest of it waits": "its remaining tasks are queued",
    "lies outside": "is outside",
    "no full path": "must be an absolute path",
    "found no place": "could not be placed",
    "begins nothing more": "cannot start more tasks",
    "widened in step": "resized together",
    "the least of a range": "a range must start at",
    "must leave no doubt": "fails if several match",
    "of a worker elsewhere": "of a remote worker",
    "of whoever": "of the user who",
    "of everybody": "of all users",
}
#: How a description may not begin: it would have no noun.
BARE = re.compile(
    r"(?:It|Its|They|Those|These|Which|What|Whose|Whoever|Of|None|Never|As|With|Without|By|From|Where|Several)\b"
)
ROUTE = {"get", "post", "put", "delete", "patch", "head"}  # what decorates an endpoint
FAMILIES = {"_gauge", "_counter", "_histogram", "Counter", "Histogram", "Info"}  # their second argument is the help
PAGES = ("README.md", "CONTRIBUTING.md", "docs/glossary.md", "docs/reasons.md")


def sentences(path: Path) -> Iterator[str]:
    """The string literals of a module, and the docstrings of commands, which are their help; no other docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and not (isinstance(node, ast.FunctionDef) and node.decorator_list and "cli" in path.parts)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield " ".join(node.value.split())


def descriptions(path: Path) -> Iterator[str]:
    """What programs read of a module: docstrings of endpoints and `description=` in openapi.json, help of metrics."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_is_route, node.decorator_list)):
            yield ast.get_docstring(node) or ""
        if isinstance(node, ast.Call):
            yield from _described(node, is_metric="metrics" in path.parts)


def _is_route(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ROUTE


def _described(call: ast.Call, *, is_metric: bool) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    texts = [keyword.value for keyword in call.keywords if keyword.arg == "description"]
    if is_metric and name in FAMILIES:
        texts += call.args[1:2]
    yield from (text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str))


def banned(text: str) -> list[str]:
    return [phrase for phrase in BANNED if re.search(rf"\b{re.escape(phrase)}(?!\w)", text, re.IGNORECASE)]


def _is_bare(text: str) -> bool:
    """Does it begin with a pronoun or a preposition? "with `all`: …" names a field, and may."""
    return BARE.match(text[:1].upper() + text[1:]) is not None and not re.match(r"with \S+:", text)


@pytest.mark.parametrize("room", ROOMS)
def test_no_message_uses_a_banned_phrase(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): words
        for path in sorted((ROOT / room).rglob("*.py"))
        if (words := [phrase for text in sentences(path) for phrase in banned(text)])
    }
    assert found == {}


@pytest.mark.parametrize(("room", "least"), [("src/swell/api", 150), ("src/swell/metrics", 25)])
def test_descriptions_of_endpoints_fields_and_metrics_name_their_noun_and_use_no_banned_phrase(
    room: str, least: int
) -> None:
    told = [
        (str(path.relative_to(ROOT)), text)
        for path in sorted((ROOT / room).rglob("*.py"))
        for text in descriptions(path)
    ]
    assert len(told) > least
    assert [(path, text) for path, text in told if banned(text) or _is_bare(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_page_uses_a_banned_phrase(page: str) -> None:
    assert banned(" ".join((ROOT / page).read_text().split())) == []


def test_every_file_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:src|docs|tests)/[\w./-]+)`", text)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_glossary_explains_each_word_once() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    words = [word.strip() for row in rows if row not in ("word", "---") for word in row.split(",")]
    assert sorted(words) == sorted(set(words))
    assert {"job", "task", "gang", "attempt", "width", "engine", "pool", "worker", "door"} <= set(words)
