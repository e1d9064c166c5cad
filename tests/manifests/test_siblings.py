"""Jobs of one submission may wait for each other, in the order in which they stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.errors import NotFound, Rejected
from swell.manifests import ManifestFile, read_files
from swell.model.job import After, JobId

from .kubernetes import CONTEXT


def find(ref: str) -> JobId:
    """There is one job already."""
    if ref in ("7", "old"):
        return 7
    raise NotFound(f"there is no job named {ref!r}")


def file(**after: str) -> str:
    documents = [
        f"apiVersion: swell/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{command: [x], after: {waits}}}\n"
        for name, waits in after.items()
    ]
    return "---\n".join(documents)


def waits(*texts: str) -> list[tuple[After, ...]]:
    knowing = replace(CONTEXT, find_job=find)
    files = [ManifestFile(text, f"{number}.yaml") for number, text in enumerate(texts)] if len(texts) > 1 else []
    return [one.spec.after for one in read_files(files or [ManifestFile(texts[0])], knowing)]


def refusal(text: str) -> str:
    with pytest.raises(Rejected) as refused:
        waits(text)
    return str(refused.value)


def test_a_job_waits_for_one_that_stands_before_it_in_the_same_file():
    """`after: fromfile` in the second document was refused: there is no job."""
    assert waits(file(a="null", b="a", c="[b, 'a:end', old]")) == [
        (),
        (After(-1),),
        (After(-2), After(-1, on_any_end=True), After(7)),
    ]


def test_of_equal_names_the_one_that_stands_last_before_it_counts():
    assert waits(file(old="null", b="old")) == [(), (After(-1),)]


def test_a_job_of_an_earlier_file_is_known_too():
    assert waits(file(a="null"), file(b="a", c="[a, b]")) == [(), (After(-1),), (After(-2), After(-1))]


def test_a_job_may_wait_for_an_older_one_of_its_own_name():
    assert waits(file(old="old")) == [(After(7),)]


def test_a_later_one_and_a_circle_are_refused():
    later = "'b' comes later in the same file; a job waits for jobs that stand before it: move 'b' up"
    assert refusal(file(a="b", b="null")) == f"document 1 of 2: line 4: after: {later}"
    assert refusal(file(a="b", b="a")) == f"document 1 of 2: line 4: after: {later}"
    itself = "'a' is this job itself, which cannot wait for its own end; name a job that stands before it"
    assert refusal(file(a="a")) == f"line 4: after: {itself}"
    assert refusal(file(a="null", b="nobody")) == "document 2 of 2: line 9: after: there is no job named 'nobody'"
