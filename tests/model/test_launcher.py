"""What a launcher is started with, asked of a real shell and a Python that says what it was given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from swell.model.launcher import BadCommand, Launcher, launch_words

GANG = {"MASTER_ADDR": "a", "MASTER_PORT": "4000"}
TORCHRUN = ["-m", "torch.distributed.run"]
#: answers the question for the package with its own exit code, and prints what it is started with after that
PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit ${MISSING:-0}
for word; do echo "$word"; done
"""


@pytest.fixture
def pythons(tmp_path: Path) -> Path:
    for name in ("python", "own-python3.9", "python3.9"):
        (tmp_path / name).write_text(PYTHON)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(pythons: Path, launcher: Launcher, *command: str, **env: str) -> list[str]:
    told = {"PATH": f"{pythons}:/usr/bin:/bin", **GANG, **env}
    done = subprocess.run(
        launch_words(launcher, command), env=told, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def of_nodes(nodes: int, node: int, gpus: int) -> list[str]:
    where = ["--master_addr=a", "--master_port=4000"]
    return [*TORCHRUN, f"--nnodes={nodes}", f"--node_rank={node}", f"--nproc_per_node={gpus}", *where]


def test_torchrun_starts_a_rank_for_each_gpu_that_the_attempt_has(pythons: Path) -> None:
    words = ("train.py", "--name", "two words")
    assert started(pythons, Launcher.TORCHRUN, *words, NUM_GPUS="4", WORLD_SIZE="1") == [*of_nodes(1, 0, 4), *words]
    assert started(pythons, Launcher.TORCHRUN, "train.py", NUM_GPUS="1") == [*of_nodes(1, 0, 1), "train.py"]
    assert started(pythons, Launcher.TORCHRUN, "train.py", NUM_GPUS="0") == [*of_nodes(1, 0, 1), "train.py"]


def test_several_tasks_are_the_nodes_of_one_launch(pythons: Path) -> None:
    told = {"NUM_GPUS": "2", "WORLD_SIZE": "3", "RANK": "1"}
    assert started(pythons, Launcher.TORCHRUN, "train.py", **told) == [*of_nodes(3, 1, 2), "train.py"]


def test_accelerate_counts_the_processes_of_all_tasks(pythons: Path) -> None:
    def found(**told: str) -> list[str]:
        return started(pythons, Launcher.ACCELERATE, "train.py", "-x", **told)

    plain = ["--mixed_precision=no", "--dynamo_backend=no"]
    where = ["--main_process_ip=a", "--main_process_port=4000"]
    assert found(NUM_GPUS="2", WORLD_SIZE="3", RANK="1") == [
        *["-m", "accelerate.commands.launch", "--num_machines=3", "--machine_rank=1", "--num_processes=6"],
        *[*where, *plain, "--multi_gpu", "train.py", "-x"],
    ]
    assert found(NUM_GPUS="1") == [
        *["-m", "accelerate.commands.launch", "--num_machines=1", "--machine_rank=0", "--num_processes=1"],
        *[*where, *plain, "train.py", "-x"],
    ]


def test_the_python_that_a_command_names_is_the_one_that_starts_its_ranks(pythons: Path) -> None:
    named = str(pythons / "python3.9")
    alone = of_nodes(1, 0, 1)
    assert started(pythons, Launcher.TORCHRUN, named, "train.py", PATH="/bin") == [*alone, "train.py"]
    assert started(pythons, Launcher.TORCHRUN, "python", "-u", "train.py", "-u") == [*alone, "train.py", "-u"]
    assert started(pythons, Launcher.TORCHRUN, "python", "-m", "pkg.train", "x") == [*alone, "-m", "pkg.train", "x"]
    assert started(pythons, Launcher.TORCHRUN, "./train", "x") == [*alone, "--no_python", "./train", "x"]


def test_a_python_without_the_package_is_named_with_what_to_do(pythons: Path) -> None:
    done = subprocess.run(
        launch_words(Launcher.TORCHRUN, ("train.py",)),
        env={"PATH": f"{pythons}:/usr/bin:/bin", "MISSING": "1", **GANG},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == (
        f"swell: --torchrun needs the package torch, which {pythons}/python does not have; activate the environment "
        "that has it, or name its Python: swell run --torchrun -- /path/to/python train.py\n"
    )


@pytest.mark.parametrize("command", [("python",), ("python3", "-W", "ignore", "train.py"), ("python", "-m")])
def test_what_no_launcher_can_start_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(BadCommand, match="torchrun starts a script"):
        launch_words(Launcher.TORCHRUN, command)


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun", "train.py"),
        ("/opt/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"),
        ("accelerate", "launch", "train.py"),
        ("python", "-m", "torch.distributed.run", "train.py"),
        ("python", "-u", "-m", "torch.distributed.launch", "train.py"),
        ("mpirun", "-np", "2", "python", "train.py"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("launcher", [Launcher.TORCHRUN, Launcher.ACCELERATE])
def test_a_command_that_starts_ranks_itself_is_refused(launcher: Launcher, command: tuple[str, ...]) -> None:
    """`--torchrun -- torchrun train.py` trained as many separate copies as there were GPUs, and succeeded."""
    with pytest.raises(BadCommand, match=f"^--{launcher} starts one rank for each GPU"):
        launch_words(launcher, command)


OLD = "#!/bin/sh\nexit 1\n"  # what a Python before 3.9 answers when it is asked for its version


def started_with_mpi(folder: Path, python: str, **env: str) -> tuple[int, str, str]:
    for name in ("python3", "python"):
        (folder / name).write_text(python)
        (folder / name).chmod(0o755)
    (folder / "uname").symlink_to("/usr/bin/uname")
    words = [word.replace("/usr/bin/python3", "no-python") for word in launch_words(Launcher.MPI, ("mpirun", "a b"))]
    done = subprocess.run(
        ["/bin/sh", *words[1:]],
        env={"PATH": str(folder), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_task_of_mpi_runs_the_library_that_its_worker_names_with_a_python_that_is_new_enough(tmp_path: Path) -> None:
    (tmp_path / "sdk/swell_sdk/mpi").mkdir(parents=True)
    (tmp_path / "sdk/swell_sdk/mpi/program.py").touch()
    python = '#!/bin/sh\n[ "$1" = -c ] && exit 0\nfor word; do echo "[$word]"; done\n'
    code, output, _ = started_with_mpi(tmp_path, python, SWELL_SDK=str(tmp_path / "sdk"))
    first, *_, library, run, program, argument = output.splitlines()
    assert (code, first, library) == (0, "[-I]", f"[{tmp_path}/sdk]")
    assert (run, program, argument) == ("[run]", "[mpirun]", "[a b]")


def test_a_task_of_mpi_says_what_its_machine_lacks(tmp_path: Path) -> None:
    missing = "swell: --mpi needs Python 3.9 or newer as python3 on PATH, in each task\n"
    assert started_with_mpi(tmp_path, OLD) == (127, "", missing)
    (tmp_path / "uname").unlink()
    missing = f"swell: --mpi needs the package swell-sdk; install it on {os.uname().nodename}, beside Swell\n"
    assert started_with_mpi(tmp_path, "#!/bin/sh\n") == (127, "", missing)
