"""How text becomes documents. A manifest is hostile input."""

from __future__ import annotations

import random
import time

import pytest

from swell.errors import Rejected, TooLarge
from swell.manifests import MANIFEST_BYTES_MAX, Context, read_manifests
from swell.manifests.yaml_text import VALUES_MAX

CONTEXT = Context(workdir="/work")
HEAD = "apiVersion: swell/v1\nkind: Job\n"
WORK_S_MAX = 2.0  # a bomb takes minutes; this is for a loaded machine


def read(spec: str, head: str = HEAD):
    [manifest] = read_manifests(f"{head}spec: {spec}\n", CONTEXT)
    return manifest.spec


def refusal(text: str) -> str:
    began = time.process_time()
    with pytest.raises(Rejected) as caught:
        read_manifests(text, CONTEXT)
    assert time.process_time() - began < WORK_S_MAX
    return str(caught.value)


def test_a_file_may_hold_several_jobs_and_empty_documents_between_them():
    text = f"---\n{HEAD}spec: {{command: [a]}}\n---\n# nothing\n---\n{HEAD}spec: {{command: [b]}}\n...\n"
    assert [one.spec.name for one in read_manifests(text, CONTEXT)] == ["a", "b"]


def test_one_bad_document_of_several_means_none_is_read_and_says_which():
    text = f"{HEAD}spec: {{command: [a]}}\n---\n{HEAD}spec: {{command: [b], gpu: 1}}\n"
    assert refusal(text).startswith("document 2 of 2: line 7: spec has no field 'gpu'; did you mean 'gpus'?")


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "---\n---\n", "null", "~"])
def test_a_file_without_a_document_is_refused(text):
    assert refusal(text) == "the manifest holds no document; start with apiVersion: swell/v1, kind: Job"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n\tb: 2", "line 2, column 1: found a tab character that violates indentation"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed in this context"),
        ("a: 'x", "line 1, column 6: found unexpected end of stream"),
        ("{a: b", "line 2, column 1: did not find expected ',' or '}'"),
        ("a: *nowhere", "line 1, column 4: found undefined alias"),
        ("? [a]\n: b", "line 1, column 3: found unhashable key"),
        ("<<: 5", "line 1, column 5: expected a mapping or list of mappings for merging, but found scalar"),
        ("%YAML 3.0\n---\na", "line 1, column 1: found incompatible YAML document"),
        ("a\0b", 'unacceptable character #x0000: control characters are not allowed in "<unicode string>", position 1'),
    ],
)
def test_malformed_yaml_is_refused_with_the_place(text, said):
    assert refusal(text) == f"the manifest is not valid YAML: {said}"


def test_text_that_is_no_unicode_is_refused():
    assert refusal("a: \ud800") == "the manifest is not valid Unicode text; save it as UTF-8"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Job\nkind: Pod", "line 2: the field 'kind' is given twice; keep one"),
        (f"{HEAD}spec: {{command: [a], env: {{A: 1, A: 2}}}}", "line 3: the field 'A' is given twice; keep one"),
        ("a: {b: 1,\n b: 1}", "line 2: the field 'b' is given twice; keep one"),
    ],
)
def test_a_key_given_twice_is_refused_because_one_of_them_would_be_lost(text, said):
    assert refusal(text) == said


def test_a_number_reaches_the_task_as_it_was_written():
    """`3.10` used to become 3.1, `010` became 8, and `no` became false: YAML 1.1 has ideas of its own."""
    job = read("{command: [tool, 3.10, 010, 0x1F, 1e3, 1_000, 12:30, no, 2024-01-01], env: {A: 3.10, B: off, C: y}}")
    words = ("tool", "3.10", "010", "0x1F", "1e3", "1_000", "12:30", "no", "2024-01-01")
    assert job.roles[0].command == words
    assert job.env == (("A", "3.10"), ("B", "off"), ("C", "y"))


def test_a_date_that_does_not_exist_is_just_text():
    """`2001-99-99` and a number of 5,000 digits used to end in a traceback."""
    assert read("{command: [echo, 2001-99-99]}").roles[0].command == ("echo", "2001-99-99")
    assert refusal(f"{HEAD}spec: {{command: [a], priority: {'1' * 5000}}}").startswith(
        "line 3: priority must be a whole number"
    )


def test_numbers_true_and_null_still_mean_what_they_say():
    job = read("{command: [a], gpus: 2, cpus: .5, time: 1:30:00, priority: +5, env: {A: true}, memory: null, array: ~}")
    assert (job.width_max, job.roles[0].resources.cpus_milli, job.time_limit_s, job.priority) == (2, 500, 5400.0, 5)
    assert job.env == (("A", "true"),)


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system", "!!binary", "!!set", "!!timestamp", "!mine", "!!omap"]
)
def test_a_yaml_tag_never_makes_anything_but_plain_values(tag):
    said = refusal(f"{HEAD}spec: {{command: [a], env: {tag} {{A: b}}}}")
    assert said.startswith("line 3: the YAML tag ")
    assert said.endswith("is not understood here; write plain values without it")


def test_an_alias_is_fine_where_it_stands_for_little():
    job = read_manifests(f"{HEAD}spec: {{command: &c [a, b], env: {{<<: {{A: b}}}}, workdir: &w x}}\n", CONTEXT)[0].spec
    assert (job.roles[0].command, job.env) == (("a", "b"), (("A", "b"),))


def _laughs(item: str, join: str) -> str:
    lines = [f"a0: &a0 {item}"]
    lines += [f"a{n}: &a{n} {join.format(','.join([f'*a{n - 1}'] * 9))}" for n in range(1, 11)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        _laughs("[x]", "[{}]"),
        _laughs("{k: v}", "{{<<: [{}]}}"),
        _laughs("[x]", "[{}]") + f"\n---\n{HEAD}spec: {{command: [a]}}",
        "[" + "x," * 500_000 + "]",
        "[" + "&a x, *a, " * 100_000 + "]",
    ],
    ids=["nested", "merged", "before-a-good-one", "long", "many-anchors"],
)
def test_a_page_that_stands_for_a_billion_values_is_refused_before_they_are_built(text):
    assert refusal(text[:MANIFEST_BYTES_MAX]) == (
        f"the manifest stands for more than {VALUES_MAX} values when its YAML aliases are written out; "
        "a job needs a few dozen: leave aliases out, or split it"
    )


@pytest.mark.parametrize("text", ["&a [*a]", "&a {b: *a}", "&a [[{c: *a}]]"])
def test_a_value_that_holds_itself_is_refused(text):
    assert refusal(text) == "line 1: the YAML alias *a stands for something it is part of; write it out"


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000 + "a", "{a: " * 1000, "? " * 1000 + "a"])
def test_deep_nesting_is_refused_before_it_is_built(text):
    assert refusal(text) == "the manifest is nested deeper than 50 levels; a job needs five"


def test_a_manifest_over_a_mebibyte_is_refused_unread():
    with pytest.raises(TooLarge, match="the manifest has 1048577 bytes; at most 1048576 are read: split it"):
        read_manifests("é" * (MANIFEST_BYTES_MAX // 2) + "x", CONTEXT)


def test_a_comment_of_almost_a_mebibyte_is_read():
    head = "#" * (MANIFEST_BYTES_MAX - 100) + "\n"
    assert read_manifests(f"{head}{HEAD}spec: {{command: [a]}}", CONTEXT)[0].spec.name == "a"


def test_whatever_is_written_the_answer_is_jobs_or_a_refusal():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    good = f"{HEAD}metadata: {{name: x}}\nspec:\n  command: [a, 'b']\n  env: {{A: b}}\n  gpus: 1..2\n"
    letters = ":-[]{}&*!|>'\"%@`#,?\n\t \0\ud800éx1~<"
    for _ in range(2000):
        text = list(good)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 3)] = chance.choices(letters, k=chance.randint(0, 3))
        try:
            read_manifests("".join(text), CONTEXT)
        except Rejected as problem:
            assert str(problem)  # anything else is a bug and surfaces  # noqa: PT017
