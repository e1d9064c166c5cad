"""Swell's own format for workloads, and the published one of Alibaba's cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.errors import Rejected
from swell.sim.traces import openb, plain

HEAD = "submit_time,gpus,requested,duration,work,speedup,user,resumes\n"


def _read(folder: Path, *rows: str) -> list[tuple[object, ...]]:
    path = folder / "jobs.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n")
    return [(job.name, job.submit_s, job.width_min, job.width, job.width_max) for job in plain.read(path).jobs]


def test_a_workload_of_ones_own_says_widths_and_moments(tmp_path: Path) -> None:
    assert _read(tmp_path, "10m,1..4,2,2h,,1:1 2:1.8,ann,yes", "0,2,,,3600,,bob,no") == [
        ("job-2", 0.0, 2, 2, 2),
        ("job-1", 600.0, 1, 2, 4),
    ]


def test_the_duration_is_that_of_the_requested_width(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEAD + "0,1..4,2,1h,,1:1 2:1.5 4:2,ann,\n")
    [job] = plain.read(path).jobs
    assert [round(job.left_s((n,), 0.0)) for n in (1, 2, 3, 4)] == [5400, 3600, 3086, 2700]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("0,4..1,,1h,,,,", "gpus is 4..1; the first number must not be the larger one"),
        ("0,0,,1h,,,,", "gpus is '0'; it must be as in 2 or 1..8, up to 4096"),
        ("0,1..4,8,1h,,,,", "requested is 8, and gpus is 1..4"),
        ("0,1,,1h,1h,,,", "it needs a duration or work, and not both"),
        ("0,1,,,,,,", "it needs a duration or work, and not both"),
        ("0,1,,0,,,,", "duration is 0; it must be more than 0"),
        ("soon,1,,1h,,,,", "submit_time: 'soon' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"),
        ("nan,1,,1h,,,,", "submit_time: 'nan' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"),
        ("0,1,,1000000h,,,,", "duration: '1000000h' is longer than a hundred years"),
        ("0,1,,1h,,1:inf,,", "speedup: 'inf' is not a number; write one from 1e-06 to 1e+15"),
        ("0,1,,1h,,2=3,,", "speedup has '2=3'; it must be as in 1:1 2:1.9 4:3.5"),
        ("0,1,,1h,,,,perhaps", "resumes is 'perhaps'; it must be yes or no"),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(Rejected) as refusal:
        _read(tmp_path, "0,1,,1h,,,,", row)
    assert str(refusal.value) == f"{tmp_path / 'jobs.csv'}:3: {problem}"


def test_a_file_that_a_spreadsheet_wrote_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit_time,gpus,duration\n0,2,1h\n", encoding="utf-8-sig")
    assert [(job.name, job.width) for job in plain.read(path).jobs] == [("job-1", 2)]


def test_yaml_has_the_same_fields(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("jobs:\n- {submit_time: 0, gpus: 1..2, duration: 1h, name: first}\n- submit_time: 5\n  gpus: 1\n")
    with pytest.raises(Rejected, match=r"jobs\.yaml:3: it needs a duration or work"):
        plain.read(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobs: 3\n", ": it must have a list `jobs:`"),
        ("jobs:\n- {gpus: 1}\n", ":2: the field 'submit_time' is missing"),
        ("jobs:\n- {gpus: [1], submit_time: 0}\n", ":2: a field must have one value"),
        (
            "jobs:\n- {gpus: 1, submit_time: 0, duraton: 1h}\n",
            ":2: there is no field 'duraton'; there are: submit_time",
        ),
        ("jobs: [\n", ":2: it is no YAML: "),
    ],
)
def test_yaml_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    with pytest.raises(Rejected) as refusal:
        plain.read(path)
    assert str(refusal.value).startswith(f"{path}{problem}")


def test_pods_of_the_published_cluster_take_parts_of_gpus(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\n")
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,10,1,460,V100M16|V100M32\np1,1000,10,2,1000,\n"
    )
    assert openb.read_nodes(nodes).gpus == 2
    found = openb.read_pods(pods)
    assert [(pod.gpu_milli, pod.needs.is_share, pod.models) for pod in found] == [
        (460, True, ("V100M16", "V100M32")),
        (2000, False, ()),
    ]


def test_a_part_of_several_gpus_is_refused(tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,10,2,460\n")
    with pytest.raises(Rejected, match=r"pods\.csv:2: gpu_milli is 460 with 2 GPUs"):
        openb.read_pods(pods)
