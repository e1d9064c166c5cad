"""kubeprofiler's commands as they are typed, with a server beside them whose machine has four GPUs of 16 MiB."""

from __future__ import annotations

from pathlib import Path

import pytest

from .shell import Shell

WITH_LIBRARY = "from kubernetesdlprofile.kubeprofiler import KubeProfiler\n"


def submit(shell: Shell, folder: Path, script: str, *words: str) -> tuple[int, str]:
    (folder / "train.py").write_text(script)
    line = ("run-scheduler", "job", "--script_path", "train.py", "--custom_dir", str(folder), *words)
    done = shell.type(*line)
    assert done.code == 0, done
    return int(done.stdout), " ".join(done.stderr.split())


def asked(shell: Shell, job: int) -> tuple[int, int, int]:
    """GPUs at least and at most, and the share of one."""
    spec = shell.service.store.job(job).spec
    share_mib = spec.roles[0].resources.gpu_memory_mib
    return (0, 0, share_mib) if share_mib else (spec.width_min, spec.width_max, 0)


@pytest.mark.parametrize(
    ("script", "words", "gpus"),
    [
        ("print(1)\n", (), (1, 4, 0)),
        ("print(1)\n", ("--estimated_memory", "10"), (0, 0, 10)),
        ("print(1)\n", ("--estimated_memory", "10", "--disable_gpu_sharing"), (1, 4, 0)),
        (WITH_LIBRARY, ("--estimated_memory", "10"), (1, 4, 0)),
        (WITH_LIBRARY, ("--estimated_memory", "10", "--is_single_gpu", "yes"), (0, 0, 10)),
    ],
)
def test_a_job_with_an_estimate_shares_a_gpu_unless_it_reports_and_scales(
    shell: Shell, tmp_path: Path, script: str, words: tuple[str, ...], gpus: tuple[int, int, int]
) -> None:
    """With an estimate of 1,000 MiB and nothing else said, it took every GPU of the machine."""
    job, said = submit(shell, tmp_path, script, *words)
    assert asked(shell, job) == gpus
    explains = "it shares one GPU: 10 MiB of it, and train.py does not use kubernetesdlprofile" in said
    assert explains == (gpus[2] > 0 and "--is_single_gpu" not in words)


def test_the_extended_state_has_image_script_and_batch_size(shell: Shell, tmp_path: Path) -> None:
    submit(shell, tmp_path, "print(1)\n", "--batch_size", "32")
    header, row = (
        line.split() for line in shell.type("scheduler-state", "--extended", "--all_users").stdout.splitlines()
    )
    shown = dict(zip(header, row, strict=False))
    assert [shown[name] for name in ("NAME", "IMAGE", "SCRIPT", "BATCH")] == [
        "job",
        "-",
        str(tmp_path / "train.py"),
        "32",
    ]
