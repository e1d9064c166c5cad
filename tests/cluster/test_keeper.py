"""Does the keeper of a cluster want what was asked of `up`? Nothing is started."""

from __future__ import annotations

import inspect

import pytest

from .__main__ import parser, wanted, words
from .cluster import Cluster

TYPED = "--kwok 9 --kwok-cpus 3 --kwok-gpus 1 --kubelets 2 --gpus 4 --operators jobset,training --images python"


def test_the_keeper_wants_every_word_that_was_typed() -> None:
    asked = parser().parse_args(["up", *TYPED.split(), "--node-grace", "600"])
    again = parser().parse_args(["keep", *words(asked)])
    assert wanted(again) == {
        "kwok": 9,
        "kwok_cpus": 3,
        "kwok_gpus": 1,
        "kubelets": 2,
        "gpus": 4,
        "operators": ["jobset", "training"],
        "images": ["python"],
        "node_grace_s": 600,
    }


def test_a_cluster_of_which_nothing_is_said_is_as_the_value_has_it() -> None:
    defaults = {name: one.default for name, one in inspect.signature(Cluster).parameters.items()}
    found = wanted(parser().parse_args(["up"]))
    assert found == {**{name: defaults[name] for name in found}, "operators": [], "images": []}


@pytest.mark.parametrize("text", ["0", "-1", "90000", "1e3", "1.5", "ten", ""])
def test_a_grace_that_cannot_be_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["up", f"--node-grace={text}"])
    assert f"must be whole seconds from 1 to 86400, but is {text!r}" in capsys.readouterr().err
