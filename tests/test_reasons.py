"""docs/reasons.md: every reason has a row, in order of precedence, and each says what to do."""

from __future__ import annotations

from pathlib import Path

from swell.model.reason import Code

PAGE = Path(__file__).parents[1] / "docs/reasons.md"


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_every_code_in_its_order():
    assert [row[0].strip("`") for row in rows()] == [str(code) for code in Code]


def test_every_row_has_state_meaning_evidence_and_what_helps():
    assert [row for row in rows() if len(row) != 5 or not all(row)] == []
