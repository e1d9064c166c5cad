"""What does a person mean by '8GiB', '1..4', '2h' or '0-99%8'?"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.model.quantity import (
    BadQuantity,
    IndexSet,
    duration_text,
    number_of,
    parse_array,
    parse_cpus,
    parse_duration,
    parse_grace,
    parse_memory,
    parse_number,
    parse_range,
    parse_seconds,
    parse_time_limit,
)
from swell.model.resources import Resources

DURATIONS = (parse_duration, parse_time_limit, parse_seconds)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("2", 2000), (2, 2000), ("0.5", 500), (0.1, 100), ("500m", 500), ("1.5", 1500), ("0", 0), (" 4 ", 4000)],
)
def test_cpus_are_thousandths(text: object, milli: int):
    assert parse_cpus(text) == milli


@pytest.mark.parametrize("text", ["", "many", "-1", "nan", "inf", "0.0001", "0.5m", "1e99", "2 cpus", None])
def test_what_is_no_number_of_cpus(text: object):
    with pytest.raises(BadQuantity, match="is not a number of CPUs; write 2"):
        parse_cpus(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("8GiB", 8192),
        ("8Gi", 8192),
        ("8gib", 8192),
        ("512MiB", 512),
        ("1.5TiB", 1572864),
        ("1GB", 954),
        ("1G", 954),
        ("1KiB", 1),
        ("0MiB", 0),
    ],
)
def test_memory_is_whole_mebibytes_rounded_up(text: object, mib: int):
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "8 GiB RAM", "8PiB", "1,5GiB", "GiB", "iB", None])
def test_what_is_no_amount_of_memory(text: object):
    with pytest.raises(BadQuantity, match="is not an amount of memory; write 512MiB"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("0.5s", 0.5),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d", 86400),
        ("1w", 604800),
        ("1:30", 90),
        ("01:30:00", 5400),
        ("1-12:00:00", 129600),
        ("1-12:30", 131400),
        ("10-0", 864000),
        ("0-1", 3600),
        ("90:00", 5400),
    ],
)
@pytest.mark.parametrize("parse", DURATIONS)
def test_durations_are_seconds_and_slurms_forms_are_read_as_slurm_reads_them(
    parse: Callable[[object], float], text: object, seconds: float
):
    assert parse(text) == seconds


@pytest.mark.parametrize(("text", "minutes"), [("10", 10), (10, 10), ("0.5", 0.5), (" 90 ", 90)])
def test_a_time_limit_without_a_unit_is_minutes_as_for_slurm(text: object, minutes: float):
    """It was taken for seconds: who came from Slurm with --time 10 lost a job after ten of them."""
    assert parse_time_limit(text) == 60 * minutes


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), (90, 90), ("0.5", 0.5)])
def test_a_grace_without_a_unit_is_seconds_as_kubernetes_and_timeout_have_it(text: object, seconds: float):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["30", 30, "0.5", "0"])
def test_of_any_other_duration_nobody_knows_what_a_bare_number_means(text: object):
    with pytest.raises(BadQuantity, match="has no unit; write 90s, 30m, 2h or 7d"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "0s", "-5m", "1h 30m", "30mm", "1y", "1:2:3:4", "nan", None, "1-", "-1", "0-0", "1-2-3", "٣:00"],
)
@pytest.mark.parametrize("parse", DURATIONS)
def test_what_is_no_duration(parse: Callable[[object], float], text: object):
    with pytest.raises(BadQuantity, match="is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"):
        parse(text)


@given(st.integers(1, 10**9))
def test_a_duration_is_told_so_that_it_can_be_written_again(seconds: int):
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(600, "10m"), (5400, "1h30m"), (90, "1m30s"), (0.5, "0.5s"), (0, "0s")])
def test_a_duration_is_told_in_few_letters(seconds: float, text: str):
    assert duration_text(seconds) == text


@pytest.mark.parametrize("text", ["9" * 400 + "s", "9" * 400 + "w", "101w5200w1w", "99999999-00:00:00"])
def test_a_duration_of_more_than_a_hundred_years_is_refused(text: str):
    """400 digits became infinity, which is not JSON."""
    with pytest.raises(BadQuantity, match="is longer than a hundred years"):
        parse_duration(text)


def test_only_a_time_limit_may_be_left_out_for_an_endless_job():
    """A grace of a million years was told to leave it out, too."""
    with pytest.raises(
        BadQuantity, match=r"^'876001h' is longer than a hundred years; leave it out for an endless job$"
    ):
        parse_time_limit("876001h")
    with pytest.raises(BadQuantity, match=r"^'876001h' is longer than a hundred years$"):
        parse_seconds("876001h")
    for text in ("876001h", "99999999999999", "86401"):
        with pytest.raises(BadQuantity, match=f"^'{text}' is longer than a day; write at most 1d$"):
            parse_grace(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 GPUs"), (1, "1 GPU"), (1.0, "1 GPU"), (2, "2 GPUs"), (0.5, "0.5 GPUs"), (12_345_678, "12345678 GPUs")],
)
def test_one_of_a_thing_is_told_in_the_singular(count: float, text: str):
    assert number_of(count, "GPU") == text


SOURCE = Path(__file__).parents[2] / "src" / "swell"
COUNTED = re.compile(r" (ranks|nodes|CPUs|GPUs|resizes|failures|preemptions|files|gangs|jobs|workers|pods)(?![\w-])")
#: Where a message is only about several, or where the number is a limit or a list of them.
SEVERAL = {
    ("cli/sim.py", "jobs"),  # a bar on a terminal
    ("cli/experiment.py", "gangs"),  # the same
    ("cli/files.py", "files"),  # sending files: 1.0 of 2.0 MB
    ("cli/demo.py", "resizes"),  # at least so many
    ("experiments/experiment.py", "gangs"),  # more than the most that there may be
    ("cli/pool_process.py", "workers"),  # 0 to 4 workers
    ("experiments/trace.py", "ranks"),  # 2 to 4 ranks
}


def test_a_number_before_a_noun_is_told_by_one_function():
    """1 ranks on 1 nodes, 1 CPUs, 1 runs each, 1 resizes, 1 files."""
    found = set()
    for path in sorted(path for folder in ("cli", "experiments") for path in (SOURCE / folder).rglob("*.py")):
        for text in ast.walk(ast.parse(path.read_text())):
            if not isinstance(text, ast.JoinedStr):
                continue
            for number, noun in pairwise(text.values):
                if isinstance(number, ast.FormattedValue) and isinstance(noun, ast.Constant):
                    match = COUNTED.match(str(noun.value))
                    if match is not None and "number_of" not in ast.unparse(number.value):
                        found.add((str(path.relative_to(SOURCE)), match[1]))
    assert found <= SEVERAL, found - SEVERAL


NO_NUMBERS = ["nan", "-nan", "inf", "-Infinity", "1e999", "1e9999", "1_0", "٣", "0x10", "", None, "1,5"]


@pytest.mark.parametrize("parse", [*DURATIONS, parse_grace, parse_cpus, parse_memory, parse_range])
@pytest.mark.parametrize("text", NO_NUMBERS)
def test_nothing_that_is_read_from_users_is_a_number_beyond_all_bounds(parse: Callable[[object], object], text: object):
    with pytest.raises(BadQuantity):
        parse(text)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_number_is_finite_and_within_its_bounds(text: object):
    with pytest.raises(BadQuantity, match=r"is not (a number; write one )?from 0 to 100$"):
        parse_number(text, low=0, high=100)


@pytest.mark.parametrize(("text", "number"), [("2", 2), ("2.5", 2.5), (".5", 0.5), ("1e2", 100), (3, 3), ("-0", 0)])
def test_a_number_is_written_as_people_write_it(text: object, number: float):
    assert parse_number(text, low=0, high=100) == number


@pytest.mark.parametrize("text", ["8", 8, "1048576", "8B"])
def test_memory_without_a_unit_is_refused_because_it_would_be_bytes(text: object):
    with pytest.raises(BadQuantity, match="has no unit, so it would be bytes; write "):
        parse_memory(text)


def test_an_i_alone_is_no_unit():
    """It passed the pattern and broke the table behind it."""
    with pytest.raises(BadQuantity, match="is not an amount of memory"):
        parse_memory("8i")


def test_more_memory_than_any_machine_has_is_refused():
    with pytest.raises(BadQuantity, match="is more memory than any machine has"):
        parse_memory("1025TiB")


@pytest.mark.parametrize(("text", "span"), [("4", (4, 4)), (4, (4, 4)), ("1..4", (1, 4)), ("0", (0, 0))])
def test_ranges(text: object, span: tuple[int, int]):
    assert parse_range(text) == span


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1-4", "is neither a count nor a range; write 2 or 1..4"),
        ("100001", "is more than any job may have (100000)"),
        ("1000000000", "is more than any job may have (100000)"),
        ("99999999999999999999", "is more than any job may have (100000)"),
        ("1.." + "9" * 5000, "is more than any job may have (100000)"),
        ("1..", "is neither a count nor a range; write 2 or 1..4"),
        ("-1", "is neither a count nor a range; write 2 or 1..4"),
        ("4..1", "the maximum 1 is below the minimum 4; write 1..4"),
        ("1..200000", "200000 is more than any job may have (100000)"),
    ],
)
def test_what_is_no_range(text: object, problem: str):
    with pytest.raises(BadQuantity) as refusal:
        parse_range(text)
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("0-3", [0, 1, 2, 3], 4),
        ("0-99%8", [*range(100)], 8),
        ("0-3%9", [0, 1, 2, 3], 4),
        ("5", [5], 1),
        ("1,3,5-6", [1, 3, 5, 6], 4),
        ("0-10:5", [0, 5, 10], 3),
        ("0-9:4%2", [0, 4, 8], 2),
    ],
)
def test_arrays(text: str, indices: list[int], at_once: int):
    found, width = parse_array(text)
    assert (list(found), len(found), width) == (indices, len(indices), at_once)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not an array; write 0-99"),
        ("a-b", "is not an array; write 0-99"),
        ("-1-5", "is not an array; write 0-99"),
        ("1,,2", "is not an array; write 0-99"),
        ("9-0", "the last index 0 is below the first 9; write 0-9"),
        ("0-9:0", "the step must be 1 or more"),
        ("0-9%0", "after % comes how many may run at once, 1 or more"),
        ("0-9%", "after % comes how many may run at once, 1 or more"),
        ("0-9%2%3", "after % comes how many may run at once, 1 or more"),
        ("0-5,5-9", "names an index twice; every index may appear once"),
        ("0-1000000", "has 1000001 tasks; at most 1000000: split it"),
    ],
)
def test_what_is_no_array(text: str, problem: str):
    with pytest.raises(BadQuantity) as refusal:
        parse_array(text)
    assert problem in str(refusal.value)


@pytest.mark.parametrize("text", ["0-99", "5", "1,3,5-6", "0-10:5", "0-8:4,9"])
def test_an_index_set_is_written_as_it_was_read(text: str):
    assert str(parse_array(text)[0]) == text


def test_an_array_of_a_million_is_one_run():
    indices, _ = parse_array("0-999999")
    assert (indices, len(indices)) == (IndexSet(((0, 999999, 1),)), 1_000_000)
    assert 999_999 in indices
    assert 1_000_000 not in indices


@pytest.mark.parametrize("parse", [parse_cpus, parse_memory, *DURATIONS, parse_range, parse_array])
@pytest.mark.parametrize("text", ["9" * 400, "٣", "1\n", "\x00", "½", "1e400", "0x10", "1_000"])
def test_hostile_text_is_refused_or_read_but_never_breaks(parse: Callable[[object], object], text: str):
    assert _outcome(parse, text)


def _outcome(parse: Callable[[object], object], text: str) -> object:
    """What it was read as, or the refusal, which names what was asked; anything else surfaces."""
    try:
        return parse(text)
    except BadQuantity as refusal:
        return repr(text.strip())[1:-1] in str(refusal)


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (Resources(1000), "1 CPU"),
        (Resources(500, 512, 1), "0.5 CPUs, 512 MiB, 1 GPU"),
        (Resources(2000, 8192, 4), "2 CPUs, 8 GiB, 4 GPUs"),
        (Resources(0, 1536), "0 CPUs, 1.5 GiB"),
    ],
)
def test_resources_are_told_in_words(resources: Resources, text: str):
    assert str(resources) == text


def test_a_demand_for_nothing_fits_anywhere_even_where_too_much_was_promised():
    assert Resources().fits_in(Resources(-1, -1, -1))
    assert not Resources(cpus_milli=1).fits_in(Resources(-1, 5, 5))
    assert Resources(cpus_milli=1).fits_in(Resources(5, -1, -1))
