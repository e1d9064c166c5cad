"""What genai's manager and run-scheduler promise: every sentence has a row in contracts.md, with a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = ("1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "4.1", "4.2")
ROW = re.compile(r"\| ([0-9.]+) \| ([^|]+) \| `(tests/[\w/]+\.py)::(test_\w+)` \|")
ROWS = [ROW.fullmatch(line) for line in (Path(__file__).parent / "contracts.md").read_text().splitlines()[6:]]


@pytest.mark.parametrize("row", ROWS, ids=[row[2] if row else "no row" for row in ROWS])
def test_every_sentence_has_a_test_that_exists(row: re.Match[str] | None) -> None:
    assert row is not None, "| section | sentence | `tests/…::test_…` |"
    assert f"def {row[4]}(" in (ROOT / row[3]).read_text()


def test_every_section_is_there_and_no_sentence_twice() -> None:
    rows = [(row[1], row[2]) for row in ROWS if row is not None]
    assert {section for section, _ in rows} == set(SECTIONS)
    assert (len(set(rows)), len(rows) >= 78) == (len(rows), True)
