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


def asked(shell: Shell, job: int) -> tuple[tuple[int, int], int]:
    """GPUs at least and at most, and the share of one, or what each has at least."""
    spec = shell.service.store.job(job).spec
    resources = spec.roles[0].resources
    return (0, 0) if resources.is_share else (spec.width_min, spec.width_max), resources.gpu_memory_mib


@pytest.mark.parametrize(
    ("script", "words", "gpus", "says"),
    [
        ("print(1)\n", (), ((1, 1), 0), "the job gets one GPU, because train.py does not use kubernetesdlprofile"),
        ("print(1)\n", ("--is_single_gpu",), ((1, 1), 0), ""),
        ("print(1)\n", ("--is_single_gpu", "no"), ((1, 4), 0), ""),
        (
            "print(1)\n",
            ("--estimated_memory", "10"),
            ((0, 0), 10),
            "the job shares one GPU and gets 10 MiB of it, because train.py does",
        ),
        (
            "print(1)\n",
            ("--estimated_memory", "10", "--disable_gpu_sharing"),
            ((1, 1), 10),
            "the job gets one GPU, because train.py",
        ),
        (WITH_LIBRARY, (), ((1, 4), 0), ""),
        (WITH_LIBRARY, ("--estimated_memory", "10"), ((1, 4), 10), ""),
        (WITH_LIBRARY, ("--estimated_memory", "10", "--is_single_gpu", "yes"), ((0, 0), 10), ""),
    ],
)
def test_the_gpus_of_a_script_follow_from_whether_it_can_be_scaled_and_what_it_says(
    shell: Shell, tmp_path: Path, script: str, words: tuple[str, ...], gpus: tuple[tuple[int, int], int], says: str
) -> None:
    """One that cannot be scaled took every GPU that was free, for as long as it ran, and nothing said so; and whole
    GPUs were given to it that had less memory than it said it needs."""
    job, said = submit(shell, tmp_path, script, *words)
    assert asked(shell, job) == gpus
    assert said.removeprefix("swell: ").startswith(says) if says else said == ""


@pytest.mark.parametrize("words", [(), ("--disable_gpu_sharing",), ("--is_single_gpu", "--disable_gpu_sharing")])
def test_an_estimate_that_no_gpu_has_is_refused_in_the_words_of_the_command(
    shell: Shell, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """It was accepted without --is_single_gpu; otherwise the refusal named options that run-scheduler does not have."""
    (tmp_path / "train.py").write_text("print(1)\n")
    line = ("run-scheduler", "big", "--script_path", "train.py", "--custom_dir", str(tmp_path))
    done = shell.type(*line, "--estimated_memory", "99999", *words)
    said = " ".join(done.stderr.split())
    assert (done.code, done.stdout) == (2, "")
    assert said.startswith("swell: job 'big' can never run here: it wants 0 CPUs, ")
    assert said.endswith("; submit it with --estimated_memory 16 or less")
    assert shell.service.store.listing(ended_since=None) == ([], 0)


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
