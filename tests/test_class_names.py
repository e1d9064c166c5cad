"""One meaning a class name: whoever reads `Verdict` need not ask which one."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import swell

SOURCE = Path(swell.__file__).parent
#: Names that still mean two things. The list only becomes shorter.
DOUBLE = {
    "Reason",  # the planner's, and what the client hands out, which imports nothing of the planner
}


def test_no_class_name_is_used_for_two_things() -> None:
    names = Counter(
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.MULTILINE)
    )
    assert {name for name, times in names.items() if times > 1} - DOUBLE == set()
    assert {name for name in DOUBLE if names[name] < 2} == set()
