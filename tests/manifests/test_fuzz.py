"""Each reader is given documents that were broken at random, in several places at once, and their text as well.

What comes of it is a job that can be stored and written again, or a `Rejected` of bounded length: never another error.
`tools/soak.py manifests` does the same a thousand times for each reader.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from swell.errors import Rejected
from swell.manifests import Context, read_manifests
from swell.manifests.writers import TARGETS, render
from swell.model.job import JobSpec

from .test_hostile import ALL, CONTEXT, NONSENSE, PLACES, places, with_nonsense

MESSAGE_MAX = 1500
SCRIPT = (
    "#!/bin/bash\n#SBATCH --ntasks=2 -c 4\n#SBATCH --gres=gpu:2\n#SBATCH --array=0-9%2\n#SBATCH --time=1:00\nsrun x\n"
)
ANY = st.sampled_from(NONSENSE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def answer(text: str | dict[str, Any], context: Context) -> str:
    """Empty: it was read or refused as it should be."""
    try:
        found = read_manifests(text, context)
    except Rejected as problem:
        return "" if 0 < len(str(problem)) < MESSAGE_MAX else f"refused with {len(str(problem))} characters: {problem}"
    for one in found:
        if JobSpec.from_document(one.spec.to_document()) != one.spec:
            return f"cannot be stored: {one.spec}"
        for target in TARGETS:
            _render(one.spec, target)
    return ""


def _render(spec: JobSpec, target: str) -> None:
    """Plain objects of Kubernetes need an image, and say so."""
    try:
        render(spec, target)
    except Rejected:
        assert target == "kubernetes"


@pytest.mark.parametrize(("kind", "context"), PLACES)
@given(data=st.data())
def test_a_document_that_is_broken_in_several_places_is_read_or_refused(kind, context, data):
    document = ALL[kind]
    for _ in range(data.draw(st.integers(1, 4))):
        paths = list(places(document))
        if paths:
            document = with_nonsense(document, data.draw(st.sampled_from(paths)), data.draw(ANY))
    assert answer(document, context) == ""


def broken(text: str, data: st.DataObject) -> str:
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        until = min(len(text), at + data.draw(st.integers(0, 6)))
        text = (
            text[:at]
            + data.draw(st.text(max_size=6) | st.sampled_from(["- ", ": ", "\n", "&a ", "*a ", "{", "<<"]))
            + text[until:]
        )
    return text


@pytest.mark.parametrize(("kind", "context"), PLACES)
@given(data=st.data())
def test_a_text_that_is_broken_in_several_places_is_read_or_refused(kind, context, data):
    text = yaml.safe_dump(ALL[kind], allow_unicode=True)
    assert answer(broken(text, data), context) == ""


@given(data=st.data())
def test_a_batch_script_that_is_broken_in_several_places_is_read_or_refused(data):
    assert answer(broken(SCRIPT, data), CONTEXT) == ""
