"""A refusal says on which line the field is that it speaks of."""

from __future__ import annotations

import pytest

from swell.errors import Rejected
from swell.manifests import Context, ManifestFile, read_files
from swell.manifests.locate import line_of

LINES = {
    "metadata": 3,
    "metadata.annotations": 4,
    "metadata.annotations.swell.dev/time": 5,
    "spec": 6,
    "spec.gpus": 7,
    "spec.frob": 8,
    "spec.containers": 9,
    "spec.containers[0]": 10,
    "spec.containers[0].env": 11,
    "frob": 12,
}


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        ("spec.containers[0].env must be a list, but is 'x'", 11),
        ("spec.containers[0].command must be a list of words", 10),
        ("spec.containers[7] has no command", 9),
        ("gpus: '0.5' is a part of a GPU", 7),
        ("gpus 0..4: a range must start at 1 or more; write 1..4", 7),
        ("metadata.annotations: swell.dev/time: 'x' is no time", 5),
        ("metadata.annotations: swell.dev/epochs is 0", 4),
        ("spec has no field 'frob'; known: gpus", 8),
        ("the manifest has no field 'frob'; known: spec", 12),
        ("nothing here can run 'apiVersion: v2'", None),
        ("", None),
    ],
)
def test_the_line_is_that_of_the_longest_known_path(problem, line):
    assert line_of(problem, LINES) == line


JOB = "apiVersion: swell/v1\nkind: Job\nspec:\n  command: [a]\n  gpus: x\n"
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - command: [a]\n    image: 5\n    env: 7\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (JOB, "job.yaml: line 5: gpus: 'x' "),
        (POD, "job.yaml: line 8: spec.containers[0].env must be a list"),
        (f"{JOB.replace('x', '1')}---\n{POD}", "job.yaml: document 2 of 2: line 14: spec.containers[0].env must be a"),
        ("a: b: c", "job.yaml: the manifest is not valid YAML: line 1, column 5: "),
        ("", "job.yaml: the manifest holds no document"),
    ],
)
def test_of_a_file_its_name_the_line_and_the_field_are_said(text, said):
    with pytest.raises(Rejected) as caught:
        read_files([ManifestFile(text, "job.yaml")], Context(workdir="/work"))
    assert str(caught.value).startswith(said)


def test_many_files_are_bounded_together():
    text = f"apiVersion: swell/v1\nkind: Job\nspec: {{command: [{'a,' * 19_000}]}}\n"
    files = [ManifestFile(text, f"{number}.yaml") for number in range(6)]
    with pytest.raises(Rejected, match="more than 100000 values together"):
        read_files(files, Context(workdir="/work"))
