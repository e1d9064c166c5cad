"""Is what others send checked, and no more than that refused?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.job import AttemptId
from swell.model.launch import CAUSE_START, TaskSeen
from swell.model.told import check

SEEN = TaskSeen(AttemptId.parse("1.1"), 0, "node", 0, 1.0, 1.0, None, CAUSE_START, "the folder /nope cannot be entered")


def test_a_sentence_may_quote_a_path_that_is_no_utf_8():
    """The report that a job had failed was refused again and again, and nothing started or ended any more."""
    check(replace(SEEN, problem="the folder /nope\udcff cannot be entered"))


@pytest.mark.parametrize(
    "changed", [{"node": "a\udcff"}, {"cause": "a\udcff"}, {"problem": 3}, {"problem": "\ud800"}, {"lane": -1}]
)
def test_a_name_must_be_whole_characters_and_a_number_a_number(changed):
    with pytest.raises(ValueError, match=r"must be|surrogates not allowed"):
        check(replace(SEEN, **changed))
