"""`swell sim`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from swell.cli.sim import command
from swell.errors import Rejected
from swell.model.policy import POLICY_NAMES
from swell.sim.command import pace_of


def _type(*words: str) -> str:
    result = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_report_names_every_policy() -> None:
    lines = _type("--jobs", "12", "--hours", "1", "--policy", "swell", "--policy", "fifo").splitlines()
    assert lines[0] == "seed-1: 12 jobs on 4 nodes with 16 GPUs"
    assert [line.split()[:2] for line in lines[3:5]] == [["swell", "12/12"], ["fifo", "12/12"]]


def test_the_columns_of_the_report_are_apart() -> None:
    """It printed kube-default2/2."""
    words = [word for name in POLICY_NAMES for word in ("--policy", name)]
    rows = _type("--jobs", "2", "--hours", "1", *words).splitlines()[3 : 3 + len(POLICY_NAMES)]
    assert [row.split()[:2] for row in rows] == [[name, "2/2"] for name in POLICY_NAMES]


def test_the_report_says_how_far_decisions_are_apart() -> None:
    words = ("--jobs", "4", "--hours", "1", "--pace", "20")
    assert _type(*words).splitlines()[0].endswith("; decisions are at least 20 s apart")
    assert json.loads(_type(*words, "-o", "json"))["pace_s"] == 20.0


def test_only_large_workloads_have_a_pace_of_their_own() -> None:
    sizes = (160, 64), (1000, 4999), (1000, 5000), (10_000, 1000), (10_000, 2000), (100_000, 80_000)
    assert [pace_of(jobs, gpus) for jobs, gpus in sizes] == [0.0, 0.0, 15.0, 30.0, 60.0, 60.0]


def test_the_same_words_give_the_same_bytes() -> None:
    words = ("--jobs", "15", "--hours", "1", "--seed", "3", "-o", "json")
    assert _type(*words) == _type(*words)


def test_json_has_every_job(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit_time,gpus,duration\n0,1,10m\n5m,2,10m\n")
    [found] = json.loads(_type(str(path), "--cluster", "1x2", "-o", "json"))["policies"]
    assert (found["done"], [job["end_s"] for job in found["each"]]) == (2, [630.0, 1260.0])


def test_a_job_that_can_never_run_is_named_with_its_reason(tmp_path: Path) -> None:
    """The report said DONE 1/2, and nothing else."""
    path = tmp_path / "jobs.csv"
    path.write_text("submit_time,gpus,duration,name\n0,1,10m,small\n0,64,10m,huge\n")
    typed = [str(path), "--cluster", "2x4"]
    for policy in POLICY_NAMES:
        answer = CliRunner().invoke(command, [*typed, "--policy", policy], catch_exceptions=False)
        assert f"swell: {policy}: huge never ends: " in answer.stderr, answer.stderr
        assert (
            "huge never ends: " in answer.stderr and "64 tasks" in answer.stderr,
            "small never ends" in answer.stderr,
        ) == (True, False), answer.stderr

    [found] = json.loads(CliRunner().invoke(command, [*typed, "-o", "json"]).stdout)["policies"]
    small, huge = ({job["name"]: job["problem"] for job in found["each"]}[name] for name in ("small", "huge"))
    assert small is None
    assert huge == (
        "CannotRunHere: it wants 64 tasks of 0.1 CPUs, 1 GPU, all at once, but only 8 tasks fit on all nodes; "
        "waiting will not help"
    )


def test_of_many_jobs_that_can_never_run_only_some_are_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit_time,gpus,duration\n" + "0,64,10m\n" * 20)
    answer = CliRunner().invoke(command, [str(path), "--cluster", "2x4"])
    assert len(answer.stderr.splitlines()) == 9
    assert answer.stderr.endswith("swell: swell: and 12 more jobs (-o json has all of them)\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("jobs.csv", "--jobs", "20"), "--jobs is of generated jobs, and jobs.csv has jobs; leave one of them out"),
        (("jobs.csv", "--hours", "4"), "--hours is of generated jobs, and jobs.csv has jobs; leave one of them out"),
        (("jobs.csv", "--seed", "1"), "--seed is of generated jobs, and jobs.csv has jobs; leave one of them out"),
        (("--profiles", "steps.txt"), "--profiles is of a Pollux workload; name its file, too"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(words: tuple[str, ...], problem: str) -> None:
    answer = CliRunner().invoke(command, list(words))
    assert (answer.exit_code, answer.stderr.splitlines()[-1]) == (2, f"Error: {problem}")


def test_profiles_of_another_format_than_pollux_are_refused(tmp_path: Path) -> None:
    for name in ("jobs.csv", "jobs.yaml"):
        (tmp_path / name).write_text("submit_time,gpus,duration\n0,1,10m\n")
        with pytest.raises(Rejected, match="it is no Pollux workload, so --profiles has no effect; leave it out"):
            CliRunner().invoke(command, [str(tmp_path / name), "--profiles", "x"], catch_exceptions=False)


def test_a_picture_is_well_formed(tmp_path: Path) -> None:
    _type("--jobs", "8", "--hours", "1", "--plot", str(tmp_path / "sim.svg"))
    picture = ElementTree.parse(tmp_path / "sim.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("nothing.csv",), "nothing.csv: it cannot be read: No such file or directory"),
        (("--cluster", "0x4"), "--cluster 0x4: from 1x0 to 20000x64, or a file with nodes"),
        *(
            (
                ("--cluster", odd),
                f"--cluster {odd}: write nodes and GPUs of each, as in 16x8, or name a file with nodes",
            )
            for odd in ("2x4x8", "2x", "2x4 ", "1234567x4")
        ),
        (("--cluster", "big"), "big: it cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_simulated_is_refused(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(Rejected) as refusal:
        CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert str(refusal.value) == problem
