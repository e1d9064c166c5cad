"""What docs/architecture.md and CONTRIBUTING.md name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/swell"
CODE = ("src", "sdk", "tests", "tools", "bench", "examples", "deploy")
PYTHON_FILE = re.compile(r"`([\w/]*\w\.py)`")
STEP = re.compile(r"`([a-z_/]+\.py):([a-zA-Z_]+)`")
FILE = re.compile(r"`((?:src/swell/|tests/|sdk/|docs/)?[a-z_/]+/[a-z_]+\.(?:py|md))`")


def test_every_step_of_the_walks_is_a_function_of_that_file() -> None:
    steps = STEP.findall((ROOT / "docs/architecture.md").read_text())
    assert len(steps) > 40
    assert [f"{file}:{name}" for file, name in steps if name not in _functions(SOURCE / file)] == []


def test_each_step_of_a_walk_is_called_by_the_one_before_it() -> None:
    """Incident: five steps named functions that exist and that nothing on that way calls."""
    walks = (ROOT / "docs/architecture.md").read_text().partition("## Three walks")[2].partition("## Four rules")[0]
    lines = [line for line in walks.splitlines() if re.match(r"\d+\. ", line)]
    links = [link for line in lines for link in _links(line)]
    assert len(links) > 40
    assert [f"{' or '.join(before)} calls {after}" for before, after in links if not _is_called(before, after)] == []


def test_the_steps_that_one_function_calls_are_named_in_the_order_in_which_it_calls_them() -> None:
    """Incident: a walk had the Secret of an attempt written by the function that answers before it."""
    walks = (ROOT / "docs/architecture.md").read_text().partition("## Three walks")[2].partition("## Four rules")[0]
    pairs = [pair for line in walks.splitlines() for pair in _pairs(line)]
    assert len(pairs) >= 8
    assert [f"{caller} calls {late} first" for caller, early, late in pairs if not _is_first(caller, early, late)] == []


def test_an_order_is_that_of_calls_not_of_words(tmp_path: Path) -> None:
    file = tmp_path / "made.py"
    file.write_text("def walk():\n    inner(outer(first()))\n    late()\n\n\ndef inner(x):\n    deep()\n")
    assert _trace(file, "walk") == ["first", "outer", "inner", "deep", "late"]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_every_file_that_is_named_is_there(page: str) -> None:
    named = FILE.findall((ROOT / page).read_text())
    assert [file for file in named if not ((SOURCE / file).exists() or (ROOT / file).exists())] == []


def test_every_file_that_a_docstring_or_a_page_names_is_there() -> None:
    """Incident: eight files had moved, and docstrings, a decision and incidents named them where they were."""
    #: of kr8s, of genai's manager, of the scheduler experiments, and Python's own name
    theirs = {"_auth.py", "_config.py", "pytorchstatus.py", "run_experiments.py", "json.py"}
    files = [path.relative_to(ROOT).parts for top in CODE for path in (ROOT / top).rglob("*.py")]
    ends = {"/".join(parts[start:]) for parts in files for start in range(len(parts))}
    texts = {str(path.relative_to(ROOT)): _docstrings(path) for path in SOURCE.rglob("*.py")}
    texts |= {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    named = {(where, name) for where, text in texts.items() for name in PYTHON_FILE.findall(text) if name not in theirs}
    assert len(named) > 200
    gone = [(where, name) for where, name in sorted(named) if name not in ends]
    assert gone == []


def test_every_package_is_in_the_table() -> None:
    table = (ROOT / "docs/architecture.md").read_text().partition("## Packages")[2].partition("## Three walks")[0]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages - set(re.findall(r"`([a-z]+)`", table)) == set()


def test_a_package_stands_in_the_table_above_those_that_it_may_import() -> None:
    contract = (ROOT / ".importlinter").read_text().partition("layers =\n")[2].partition("\n\n")[0]
    layers = [re.findall(r"swell\.([a-z]+)", line) for line in contract.splitlines()]
    table = (ROOT / "docs/architecture.md").read_text().partition("## Packages")[2].partition("Inside `engines/")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z]+)`", row)]
    level = {name: number for number, layer in enumerate(layers) for name in layer}
    assert set(level) <= set(named)
    assert sorted(named, key=lambda name: level.get(name, len(layers))) == named


def _docstrings(file: Path) -> str:
    nodes = ast.walk(ast.parse(file.read_text()))
    owners = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    return "\n".join(ast.get_docstring(node) or "" for node in owners)


def _functions(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _links(line: str) -> list[tuple[list[str], str]]:
    """Each step that is called, and the steps of which one must call it: the one before, or after `then` any."""
    links, before, end = [], [], 0
    for step in STEP.finditer(line):
        between, end = line[end : step.start()], step.end()
        name = ":".join(step.groups())
        if "…" in between:
            before = []
        elif before:
            assert re.fullmatch(r" → | then ", between), f"{between!r} before {name}"
            links.append((before if "then" in between else before[-1:], name))
        before = [*before, name]
    return links


def _pairs(line: str) -> list[tuple[str, str, str]]:
    """Of each `then`: a function of the line that calls both steps around it, and those two."""
    pairs = []
    for part in re.split("…", line):
        steps = [(":".join(step.groups()), part[: step.start()].endswith(" then ")) for step in STEP.finditer(part)]
        for place, (late, is_then) in enumerate(steps):
            early = steps[place - 1][0]
            callers = [one for one, _ in steps[: place - 1] if _is_called([one], early) and _is_called([one], late)]
            pairs += [(callers[-1], early, late)] if is_then and callers else []
    return pairs


def _is_first(caller: str, early: str, late: str) -> bool:
    """Is the one called before the other is called for the last time?"""
    file, _, name = caller.partition(":")
    called = _trace(SOURCE / file, name)
    first, second = (one.partition(":")[2] for one in (early, late))
    return called.index(first) < len(called) - called[::-1].index(second)


def _trace(file: Path, name: str) -> list[str]:
    """The names that a function uses, in the order of evaluation, followed into the functions of its own file."""
    nodes = [
        one for one in ast.walk(ast.parse(file.read_text())) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    bodies = {one.name: one for one in nodes}
    entered: set[str] = set()

    def follow(name: str) -> list[str]:
        if name not in bodies or name in entered:
            return []
        entered.add(name)
        names = [one for statement in bodies[name].body for one in _evaluated(statement)]
        return [found for one in names for found in (one, *follow(one))]

    return follow(name)


def _evaluated(node: ast.AST) -> list[str]:
    """The names in it; that of a function after those of its arguments, which are evaluated before it is called."""
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr=name), args=args, keywords=named):
            return [one for part in (of, *args, *named) for one in _evaluated(part)] + [name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=named):
            return [one for part in (*args, *named) for one in _evaluated(part)] + [name]
        case ast.Attribute(value=of, attr=name):
            return [*_evaluated(of), name]
        case ast.Name(id=name):
            return [name]
    return [one for part in ast.iter_child_nodes(node) for one in _evaluated(part)]


def _is_called(before: list[str], after: str) -> bool:
    return any(after.partition(":")[2] in _used(*one.split(":")) for one in before)


def _used(file: str, name: str) -> set[str]:
    """What a function names in its body, directly or in the functions of its own file that it names."""
    bodies: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse((SOURCE / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            bodies.setdefault(node.name, set()).update(_names(node))
    found, due = set(), [name]
    while due:
        new = bodies.get(due.pop(), set()) - found
        found |= new
        due += new & bodies.keys()
    return found


def _names(function: ast.AST) -> set[str]:
    nodes = list(ast.walk(function))
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    return plain | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
