"""`$(NAME)` in words and variables, as Kubernetes writes it out."""

from __future__ import annotations

import time

import pytest

from swell.errors import Rejected
from swell.manifests.expand import EXPANDED_MAX, Expansion

from .kubernetes import container, pod, read, refusal


def expand(text: str, **variables: str) -> str:
    return Expansion("here").expand(text, variables)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("$(A)", "one"),
        ("x$(A)y$(B)z", "xoneytwoz"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$", "$"),
        ("$$", "$"),
        ("$(A", "$(A"),
        ("$(A) $$ $(A $$", "one $ $(A $"),
        ("$()", "$()"),
        ("$(date) $((1 + 2))", "$(date) $((1 + 2))"),
        ("$(A$(B))", "$(A$(B))"),
        ("", ""),
    ],
)
def test_a_reference_is_the_variables_value_and_two_dollars_are_one(text, meaning):
    assert expand(text, A="one", B="two") == meaning


def test_a_value_is_not_expanded_again():
    assert expand("$(A)", A="$(B)", B="no") == "$(B)"


def test_command_and_args_see_every_variable_and_a_variable_sees_those_before_it():
    env = [
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "late"},
        {"name": "BOTH", "value": "$(LATE)+$(EARLY)+$$(LATE)"},
    ]
    spec = read(pod(container(command=["run", "$(BOTH)"], args=["--x=$(LATE)", "$(HOME)"], env=env)))
    assert spec.roles[0].command == ("run", "late+$(LATE)+$(LATE)", "--x=late", "$(HOME)")
    assert dict(spec.roles[0].env) == {"EARLY": "$(LATE)", "LATE": "late", "BOTH": "late+$(LATE)+$(LATE)"}


def test_variables_that_double_each_other_are_refused_before_they_fill_the_memory():
    env = [{"name": "V0", "value": "x" * 100}]
    env += [{"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(1, 60)]
    said = "its command and variables have more than 262144 characters when every $(NAME) is written out"
    assert said in refusal(pod(container(env=env)))


def test_one_word_that_names_a_long_variable_often_is_refused():
    with pytest.raises(Rejected, match="put long text into a file"):
        expand("$(A)" * 100_000, A="x" * EXPANDED_MAX)


@pytest.mark.parametrize(
    "text",
    ["$(" * 100_000, "$(a" * 80_000, "$" * 200_001, "$(" + "a" * 200_000, ")" + "$(" * 100_000, "$(" * 100_000 + ")"],
)
def test_references_that_never_end_cost_no_more_than_their_length(text):
    began = time.process_time()
    expand(text)
    assert time.process_time() - began < 2.0


def test_a_program_that_a_variable_makes_empty_is_refused():
    document = pod(container(command=["$(X)"], env=[{"name": "X"}]))
    assert refusal(document) == "spec.containers[0].command: the first word, the program, is empty"


def test_a_word_that_a_variable_makes_too_long_is_refused():
    env = [{"name": "X", "value": "x" * 70_000}]
    said = refusal(pod(container(command=["run", "$(X)$(X)"], env=env)))
    assert said == "spec.containers[0].command: a word is longer than 131072 bytes; put it into a file"
