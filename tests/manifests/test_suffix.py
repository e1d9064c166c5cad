"""What a manifest is called with a suffix, and what in it would still go by the old name."""

from __future__ import annotations

import random
import string
from dataclasses import replace
from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests import read_files
from swell.manifests.read import ManifestFile
from swell.manifests.suffix import with_suffix

from .kubernetes import CONTEXT


def saying(text: str) -> dict[str, Any]:
    """A set called train, one of whose variables is this."""
    container = {"name": "main", "env": [{"name": "MASTER_ADDR", "value": text}]}
    return {"kind": "JobSet", "metadata": {"name": "train", "labels": {"app": "train"}}, "spec": {"pod": [container]}}


@pytest.mark.parametrize(
    "text",
    [
        "train.py",
        "train",
        "/data/train/files",
        "python train.py --name train",
        "other-0.other",
        "retrain-0",
        "train-fast",
    ],
)
def test_words_that_are_no_address_stay_as_they_are(text: str) -> None:
    made = saying(text)
    assert with_suffix(made, "-2") == {**made, "metadata": {**made["metadata"], "name": "train-2"}}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("train-workers-0-0.train", "train-workers-0-0.train"),
        ("tcp://train-master-0:23456", "train-master-0"),
        ("--rdzv-endpoint=train-worker-0.train.ml.svc:29500", "train-worker-0.train.ml.svc"),
        ("train.ml.svc.cluster.local", "train.ml.svc.cluster.local"),
        ("worker.train", "worker.train"),
    ],
)
def test_an_address_under_the_old_name_is_refused(text: str, word: str) -> None:
    """`MASTER_ADDR` of the renamed still named the first: two trainings met."""
    with pytest.raises(Rejected) as refused:
        with_suffix(saying(text), "-2")
    assert str(refused.value) == (
        f"spec.pod[0].env[0].value contains '{word}', an address of 'train': under the name 'train-2' it would be that "
        "of another job; change both in the file and leave out --suffix"
    )


def test_whatever_the_name_its_own_addresses_are_found() -> None:
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    for _ in range(300):
        name = "a" + "".join(chosen.choices(string.ascii_lowercase + string.digits + "-", k=chosen.randrange(20))) + "z"
        address = f"{name}-{chosen.choice(['workers-0', 'master', 'worker'])}-{chosen.randrange(100)}"
        address += chosen.choice(["", f".{name}", f".{name}.ml.svc.cluster.local"])
        document = saying(chosen.choice(["", "tcp://", "x="]) + address + chosen.choice(["", ":80", " and more"]))
        document["metadata"]["name"] = name
        try:
            made = with_suffix(document, "-2")
        except Rejected:
            continue
        pytest.fail(f"seed {seed}: {address} of {name} was kept: {made}")


JOB = "apiVersion: swell/v1\nkind: Job\nmetadata: {name: NAME}\nspec: {command: [echo, hi]AFTER}\n"


def submitted(*texts: str, suffix: str = "-2") -> list[str]:
    files = [ManifestFile(text, f"{number}.yaml") for number, text in enumerate(texts)]
    return [one.spec.name for one in read_files(files, replace(CONTEXT, suffix=suffix))]


def test_every_manifest_of_every_file_gets_it() -> None:
    texts = [JOB.replace("NAME", name).replace("AFTER", "") for name in ("prep", "train")]
    assert submitted(*texts) == submitted("---\n".join(texts)) == ["prep-2", "train-2"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            JOB.replace("NAME", "train").replace("AFTER", ", after: [prep]"),
            "spec.after[0] is the name of a job, to which --suffix would not be added; leave --suffix out",
        ),
        (
            JOB.replace("{name: NAME}", "{}").replace("AFTER", ""),
            "it has no metadata.name to which --suffix -2 could be added; write one",
        ),
        ("#!/bin/sh\n#SBATCH -n 1\ntrue\n", "--suffix is for manifests; write another --job-name in the script"),
    ],
)
def test_what_cannot_have_a_suffix_is_refused(text: str, problem: str) -> None:
    with pytest.raises(Rejected) as refused:
        submitted(text)
    assert str(refused.value) == f"0.yaml: {problem}"
