"""What a worker inside a batch job offers: what that job was given, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.model.cluster import Device
from swell.worker.allocation import Allocation, read_allocation

GPUS = tuple(Device(f"GPU-{name}", 1024, "A100") for name in "abc")


def cgroups(tmp_path: Path, own: str, files: dict[str, str]) -> dict[str, Path]:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"own_cgroups": tmp_path / "own", "cgroups": tmp_path / "fs"}


def test_the_least_limit_of_its_control_groups_and_those_above_counts(tmp_path: Path) -> None:
    files = {
        "cpu.max": "max 100000",
        "slurm/cpu.max": "400000 100000",
        "slurm/job_7/cpu.max": "max 100000",
        "slurm/memory.max": "max",
        "slurm/job_7/memory.max": str(3 << 30),
        "other/memory.max": "1",
    }
    assert read_allocation({}, **cgroups(tmp_path, "0::/slurm/job_7\n", files)) == Allocation(4000, 3072)


def test_control_groups_of_version_1_count_too(tmp_path: Path) -> None:
    files = {
        "memory/docker/memory.limit_in_bytes": str(2 << 30),
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "cpu,cpuacct/docker/cpu.cfs_quota_us": "150000",
        "cpu,cpuacct/docker/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    own = "9:memory:/docker\n4:cpu,cpuacct:/docker\n"
    assert read_allocation({}, **cgroups(tmp_path, own, files)) == Allocation(1500, 2048)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Allocation()),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "4096"}, Allocation(8000, 4096)),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_CPU": "512"}, Allocation(8000, 4096)),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "0"}, Allocation(8000)),
        ({"SLURM_CPUS_ON_NODE": "8(x2)", "SLURM_MEM_PER_NODE": "many"}, Allocation()),
        ({"CUDA_VISIBLE_DEVICES": ""}, Allocation(gpus=())),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, Allocation(gpus=("1", "0"))),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, Allocation(gpus=("0",))),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, Allocation(gpus=())),
    ],
)
def test_what_the_batch_system_says_counts(tmp_path: Path, environ: dict[str, str], expected: Allocation) -> None:
    assert read_allocation(environ, **cgroups(tmp_path, "", {})) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [(None, "abc"), ((), ""), (("2", "0"), "ca"), (("GPU-b",), "b"), (("7", "1", "1"), "b"), (("GPU-x",), "")],
)
def test_only_the_gpus_that_were_given_are_offered(names: tuple[str, ...] | None, expected: str) -> None:
    assert [device.id[-1] for device in Allocation(gpus=names).of_devices(GPUS)] == list(expected)
