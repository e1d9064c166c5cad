"""Files with workloads, read and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.errors import Rejected
from swell.sim.traces import pollux

PROFILE = """\
1
net 64 2 2 2 2 1
1 32 1 64 10 20
2 32 0 64 10 20
1 2.5
2 1.5
2 2 1.75
"""
HEAD = "name,time,application,num_replicas,batch_size\n"


def _profiles(folder: Path, text: str = PROFILE) -> dict[tuple[str, int], pollux.Profile]:
    (folder / "step_times.txt").write_text(text)
    return pollux.read_profiles(folder / "step_times.txt")


def test_a_profile_knows_placements_that_were_measured_and_others_by_nodes_and_gpus(tmp_path: Path) -> None:
    profile = _profiles(tmp_path)["net", 64]
    assert profile.epoch_s((1,), 1) == 50.0
    assert profile.epoch_s((2,), 0) == 15.0
    assert profile.epoch_s((1, 1), 0) == 17.5
    assert profile.remaining_s((2,), 0, 2) == 45.0


def test_a_workload_is_read_by_time(tmp_path: Path) -> None:
    path = tmp_path / "workload-1.csv"
    path.write_text(HEAD + "late,20,net,2,64\nsoon,10,net,1,64\n")
    found = pollux.read(path, _profiles(tmp_path))
    assert [(job.name, job.submit_s, job.width, job.width_max) for job in found.jobs] == [
        ("soon", 10.0, 1, 2),
        ("late", 20.0, 2, 2),
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a,10,other,1,64", "there is no profile of other with batch size 64"),
        ("a,10,net,3,64", "num_replicas is 3, and net runs on at most 2"),
        ("a,soon,net,1,64", "time: 'soon' is not a number; write one from 0 to 1e+15"),
        ("a,nan,net,1,64", "time: 'nan' is not a number; write one from 0 to 1e+15"),
        ("a,10,net,1", "it has 4 fields, the first line has 5"),
        (",10,net,1,64", "the field 'name' is empty"),
        ('a,10,"net,1,64', "it is no row of a CSV file: unexpected end of data"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    path = tmp_path / "workload-1.csv"
    path.write_text(f"{HEAD}good,5,net,1,64\n{row}\n")
    with pytest.raises(Rejected) as refusal:
        pollux.read(path, _profiles(tmp_path))
    assert str(refusal.value) == f"{path}:3: {problem}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": the file is empty"),
        ("many\n", ":1: the number of pairs is 'many'; it must be a whole number up to 1000"),
        (PROFILE.replace("2 1.5", "2"), ":6: it has 1 words, not 2"),
        (PROFILE.replace("2 2 1.75", "2 1.75"), ":7: it has 2 words, not 3"),
        ("1\nnet 64 2 2 2 2 1\n", ": the file ends before the last profile does"),
    ],
)
def test_profiles_that_cannot_be_read_are_refused_with_their_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Rejected) as refusal:
        _profiles(tmp_path, text)
    assert str(refusal.value) == f"{tmp_path / 'step_times.txt'}{problem}"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"nothing\.txt: it cannot be read: No such file"):
        pollux.read_profiles(tmp_path / "nothing.txt")
