"""A request of the wrong form is refused in sentences of ours, whatever is wrong with it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from swell.api.invalid import PATTERNS, PLAIN_NAME, in_words
from swell.api.tokens import Creation
from swell.api.wire import Cancellations, Submission, Sync
from swell.engines.report_form import ReportIn

THEIR_WORDS = re.compile(r"should|valid|\^\[|pattern|dictionary|integer|_s\b")


class Everything(BaseModel):
    low: int = Field(default=1, ge=1, lt=9)
    high: float = Field(default=1.0, gt=0, le=9, allow_inf_nan=False)
    wait_s: float = Field(default=60.0, gt=0, le=86400)
    word: Literal["a", "b"] = "a"
    text: str = Field(default="ab", min_length=2, max_length=3)
    some: list[int] = Field(default_factory=list, max_length=1)
    names: dict[Annotated[str, Field(min_length=1)], int] = Field(default_factory=dict)
    flag: bool = False
    pair: tuple[int, float] = (1, 1.0)
    inner: Creation | None = None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"low": 0}, "low must be at least 1, but is 0"),
        ({"low": 9}, "low must be less than 9, but is 9"),
        ({"low": 1.5}, "low must be a whole number, but is 1.5"),
        ({"low": "x"}, "low must be a whole number, but is 'x'"),
        ({"high": 0}, "high must be more than 0, but is 0"),
        ({"high": float("inf")}, "high must be a finite number, but is inf"),
        ({"wait_s": 900 * 86400}, "wait must be at most 1d, but is 900d"),
        ({"wait_s": -1}, "wait must be more than 0, but is -1"),
        ({"word": "c"}, "word must be 'a' or 'b', but is 'c'"),
        ({"text": "a"}, "text must be at least 2 characters long, but is 'a'"),
        ({"text": "abcd"}, "text must be at most 3 characters long, but is 'abcd'"),
        ({"text": 5}, "text must be text, but is 5"),
        ({"some": [1, 2]}, "some must be at most 1 item long, but is a list: [1, 2]"),
        ({"names": {"": 1}}, "a name in names must be at least 1 character long, but is ''"),
        ({"names": []}, "names must be a mapping of names to values, but is a list: []"),
        ({"flag": "maybe"}, "flag must be true or false, but is 'maybe'"),
        ({"pair": 5}, "pair must be a list, but is 5"),
        ({"inner": {"name": "a b"}}, f"inner.name must be {PATTERNS[PLAIN_NAME]}, but is 'a b'"),
        ({"inner": {"name": "a", "lasts_s": 900 * 86400}}, "inner.lasts must be at most 366d, but is 900d"),
        (
            {"inner": {"name": "a", "scope": "x"}},
            "inner.scope must be 'read', 'submit', 'admin', 'worker' or 'pool', but is 'x'",
        ),
    ],
    ids=str,
)
def test_what_must_be_and_what_was_sent(fields: dict[str, Any], said: str) -> None:
    """`swell token create 'a b'` was answered with a regular expression, `--lasts 900d` in seconds."""
    assert _said(Everything, fields) == said


@pytest.mark.parametrize("model", [Creation, Cancellations, Submission, Sync, ReportIn])
@pytest.mark.parametrize("value", [None, "?", [1], {"a": 1}, -1, 1.5, 1e300, True, "a b" * 9000])
def test_no_field_of_any_request_is_refused_in_the_words_of_a_library(model: type[BaseModel], value: Any) -> None:
    for name in model.model_fields:
        said = _said(model, {name: value})
        assert not THEIR_WORDS.search(said.partition(", but is")[0]), said


def _said(model: type[BaseModel], fields: dict[str, Any]) -> str:
    """Empty: it is fine so."""
    try:
        model.model_validate(fields)
    except ValidationError as error:
        found = [one for one in error.errors() if one["type"] not in ("missing", "extra_forbidden")]
        return in_words({**found[0], "loc": ("body", *found[0]["loc"])}) if found else ""
    return ""
