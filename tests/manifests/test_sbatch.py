"""Batch scripts of Slurm's: what their options ask for, and how they run where there is no Slurm."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.errors import NotFound, Rejected
from swell.manifests import Context, ManifestFile, read_files
from swell.manifests.sbatch_options import IGNORED, REFUSED, USED
from swell.model.job import JobSpec

from .kubernetes import CONTEXT

DOCUMENT = Path(__file__).parents[2] / "docs" / "slurm.md"


def find(ref: str) -> int:
    if ref.isdigit():
        return int(ref)
    raise NotFound(f"no job is called {ref}")


HERE = replace(CONTEXT, find_job=find)


def read(*options: str, body: str = "true\n", shell: str = "#!/bin/bash", context: Context = HERE) -> JobSpec:
    text = "\n".join([shell, *(f"#SBATCH {one}" for one in options), "", body])
    [found] = read_files([ManifestFile(text, "dir/job.sh")], context)
    return found.spec


def test_the_lines_of_options_are_known():
    text = "#!/bin/sh\n#SBATCH -n 2\n#SBATCH -t 5\n#SBATCH --mem-per-cpu=1G\n#SBATCH -c 2\ntrue\n"
    [found] = read_files([ManifestFile(text, "job.sh")], HERE)
    assert found.lines == {"spec.command": 1, "spec.cpus": 5, "spec.memory": 4, "spec.time": 3}


def refusal(*options: str, **how: str) -> str:
    with pytest.raises(Rejected) as caught:
        read(*options, **how)
    return str(caught.value)


def asked(spec: JobSpec) -> tuple[int, int, int]:
    [role] = spec.roles
    return role.resources.cpus_milli // 1000, role.resources.memory_mib, role.resources.gpus


@pytest.mark.parametrize(
    ("options", "wants"),
    [
        ([], (1, 0, 0)),
        (["-n 4", "-c 2", "--mem=8G"], (8, 8192, 0)),
        (["-n4 -c2 --mem-per-cpu 1000"], (8, 8000, 0)),
        (["--nodes=2", "--ntasks-per-node=3", "--mem=1024K"], (6, 2, 0)),
        (["-N 2-4", "--gpus-per-node=a100:2"], (2, 0, 4)),
        (["-n 2", "--gpus-per-task=1", "--mem-per-gpu=2G"], (2, 4096, 2)),
        (["-G 3"], (1, 0, 3)),
        (["--gres=gpu"], (1, 0, 1)),
        (["--gres=gpu:v100:4", "--gpus=4"], (1, 0, 4)),
        (["--mem=0"], (1, 0, 0)),
        (["-n 2", "-n 3  # the last counts"], (3, 0, 0)),
    ],
)
def test_a_script_is_one_task_with_room_for_all_its_tasks(options, wants):
    assert asked(read(*options)) == wants


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 600), ("10:30", 630), ("1:00:00", 3600), ("2-0", 172800), ("1-12:30", 131400), ("UNLIMITED", None)],
)
def test_a_time_limit_is_written_as_for_slurm(text, seconds):
    assert read(f"--time={text}").time_limit_s == seconds


def test_names_folders_arrays_dependencies_mail_and_variables_are_the_jobs():
    spec = read(
        "--job-name='my train/1'",
        "--array=1-9:2%2",
        "--dependency=afterok:12:13,afterany:14",
        "--chdir=runs --hold",
        "--mail-type=BEGIN,FAIL --mail-user=ann@example.org",
        "--export=ALL,RATE=0.1",
    )
    assert spec.array is not None
    assert spec.notify is not None
    assert (spec.name, str(spec.array.indices), spec.array.at_once, spec.is_held) == ("my-train-1", "1-9:2", 2, True)
    assert [(one.job, one.on_any_end) for one in spec.after] == [(12, False), (13, False), (14, True)]
    assert (spec.workdir, spec.env, spec.retries) == ("/home/ann/runs", (("RATE", "0.1"),), 0)
    assert (spec.notify.recipient, spec.notify.only_on_error) == ("ann@example.org", True)
    assert read().name == "job.sh"


def test_what_has_no_effect_is_said_with_its_line():
    notes = read("-p big", "--exclusive", "-N 2", "--gres=gpu:a100:1", body="true\n#SBATCH --time=1\n").notes
    assert notes == (
        "line 2: --partition has no effect: there are no partitions; Swell places jobs by what they ask for",
        (
            "line 3: --exclusive has no effect: a job has the CPUs, memory and GPUs that it asks for, and others may "
            "have the rest"
        ),
        "line 8: #SBATCH after the first command has no effect, as for sbatch",
        "--nodes=2: all tasks run on one machine, which must have room for them",
        "the type of GPU, a100, has no effect: machines have no types",
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--taks=2"], "line 2: sbatch has no option --taks here; did you mean 'ntasks'?"),
        (["-n"], "line 2: -n has no value; write -n=VALUE"),
        (["-Z 1"], "line 2: '-Z' is no option of sbatch; write --name=value"),
        (["-n 2", "--begin=now+1hour"], "line 3: --begin=now+1hour delays the start, which Swell does not"),
        (["--ntasks=-1"], "line 2: --ntasks=-1 is no number above 0"),
        (["--ntasks=999999999"], "the script asks for 999999999 tasks; a job has at most 100000"),
        (["--time=soon"], "line 2: --time=soon cannot be read: 'soon' is not a duration"),
        (["--mem=8GiB"], "line 2: --mem=8GiB is no amount of memory; write 4000M or 8G"),
        (["--mem=1G", "--mem-per-cpu=1G"], "line 3: --mem-per-cpu=1G beside --mem: they exclude each other"),
        (["--gres=mps:50"], "line 2: --gres=mps:50 is not known here; write gpu:2"),
        (["-G 1", "--gres=gpu:2"], "the script asks for different numbers of GPUs: --gpus for 1, --gres for 2"),
        (["--array=0-999999999"], "line 2: --array=0-999999999 cannot be read: array '0-999999999' has 1000000000"),
        (["--dependency=singleton"], "line 2: --dependency=singleton cannot be kept: afterok:ID and afterany:ID are"),
        (
            ["--dependency=afterok:12?afterok:13"],
            "line 2: --dependency=afterok:12?afterok:13 cannot be kept: afterok:ID and af",
        ),
        (["--export=NONE"], "line 2: --export=NONE cannot be kept: a job has the environment that it is submitted"),
        (["--mail-type=END"], "line 2: --mail-type=END without --mail-user: whom to tell is not known here"),
        (["--job-name='x"], "line 2: #SBATCH cannot be split into words: No closing quotation"),
        (["-n 1 : -n 2"], "line 2: a heterogeneous job has several parts; write a job file with roles"),
        (["--uid=0"], "line 2: --uid=0 asks for another user; submit it as that user"),
    ],
)
def test_what_would_mean_something_else_is_refused_with_its_line(options, said):
    assert refusal(*options).startswith(f"dir/job.sh: {said}")


def test_a_script_needs_a_shell_or_python_a_folder_and_to_be_of_some_size():
    assert refusal(shell="#!/usr/bin/perl").startswith("dir/job.sh: line 1: '#!/usr/bin/perl' names no shell and no Py")
    assert refusal(shell="#!").startswith("dir/job.sh: line 1: #! names no program; write #!/bin/bash")
    assert refusal(body="#" * 200_000).startswith("dir/job.sh: the script is longer than 100 KiB")
    assert refusal(body="\0").startswith("dir/job.sh: the script holds a null character")
    with pytest.raises(Rejected, match="a batch script runs in the folder that it is submitted from, which a pod"):
        read(context=replace(HERE, on_cluster=True))


# -- what is given beside the script ----------------------------------------------------------------------


def submitted(text: str, *arguments: str, options: str = "") -> JobSpec:
    [found] = read_files([ManifestFile(text, "dir/job.sh", arguments, options)], HERE)
    return found.spec


def test_options_beside_the_script_override_its_own_and_those_that_exclude_them():
    text = "#!/bin/sh\n#SBATCH -n 2 --mem=1G --gpus=4 -t 10\ntrue\n"
    spec = submitted(text, options="--mem-per-cpu=2G --gres gpu:1 -J other")
    assert (spec.name, asked(spec), spec.time_limit_s) == ("other", (2, 4096, 1), 600)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--begin=now", "--sbatch: --begin=now delays the start"),
        ("--taks=2", "--sbatch: sbatch has no option --taks here; did you mean 'ntasks'?"),
        ("--time", "--sbatch: --time has no value; write --time=VALUE"),
        ("job.sh", "--sbatch: 'job.sh' is no option of sbatch"),
        ("--time=soon", "--sbatch: --time=soon cannot be read"),
        ("'", "--sbatch: #SBATCH cannot be split into words"),
    ],
)
def test_a_refusal_of_an_option_beside_the_script_says_where_it_stands(options, said):
    with pytest.raises(Rejected) as caught:
        submitted("#!/bin/sh\ntrue\n", options=options)
    assert str(caught.value).startswith(f"dir/job.sh: {said}")


@pytest.mark.parametrize(
    ("shell", "body"),
    [
        ("#!/bin/sh", 'echo $# "$1" "$2"'),
        ("#!/bin/bash", 'echo $# "$1" "$2"'),
        ("#!/usr/bin/env python3", "import sys; print(len(sys.argv) - 1, *sys.argv[1:])"),
    ],
)
def test_a_script_reads_its_arguments(shell, body, tmp_path):
    assert run(submitted(f"{shell}\n{body}\n", "lr=0.1", "a  b"), tmp_path) == (0, ["2 lr=0.1 a  b"])


def test_what_has_options_of_slurm_and_no_first_line_is_told_so():
    said = "dir/job.sh: it is no batch script: the first line must be #!/bin/sh or the like"
    for text, arguments in (("#SBATCH -n 2\ntrue\n", ()), ("\n#!/bin/sh\n#SBATCH -n 2\n", ()), ("kind: Job", ("x",))):
        with pytest.raises(Rejected) as caught:
            submitted(text, *arguments)
        assert str(caught.value) == said


# -- how it runs ---------------------------------------------------------------------------------------------


def run(spec: JobSpec, folder: Path, **env: str) -> tuple[int, list[str]]:
    told = {"SWELL_JOB_ID": "7", "SWELL_ATTEMPT": "7.1", "SWELL_TASK_INDEX": "0", **env}
    done = subprocess.run(
        spec.roles[0].command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **told},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]


@pytest.mark.parametrize("shell", ["#!/bin/bash", "#!/bin/sh", "#!/usr/bin/env bash"])
def test_srun_starts_every_task_and_the_script_reads_slurms_variables(shell, tmp_path):
    body = (
        "echo $0 $SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_PROCID $SLURM_SUBMIT_DIR\n"
        "srun --cpu-bind none sh -c 'echo $SLURM_PROCID $SLURM_LOCALID $CUDA_VISIBLE_DEVICES $SLURM_NTASKS' | sort\n"
        "srun -n 1 echo one\n"
    )
    spec = read("-n 2 -c 1 --gpus-per-task=2", body=body, shell=shell)
    assert run(spec, tmp_path, CUDA_VISIBLE_DEVICES="a,b,c,d") == (
        0,
        [f"job.sh 7 job.sh 2 1 0 {tmp_path}", "0 0 a,b 2", "1 1 c,d 2", "one"],
    )


def test_srun_fails_as_its_first_task_that_failed(tmp_path):
    assert run(read("-n 3", body="srun sh -c 'exit $SLURM_PROCID'\n"), tmp_path)[0] == 1
    assert run(read(body="srun\n"), tmp_path) == (2, ["srun: no command; write srun PROGRAM ARGUMENT..."])
    assert run(read(body="srun -n x true\n"), tmp_path) == (2, ["srun: -n x is no number of tasks"])


def test_an_array_task_knows_its_index_and_writes_where_its_pattern_says(tmp_path):
    body = "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MAX; echo x >&2\n"
    spec = read("--array=1-9:2", "--output='of %x $(touch y) %A_%3a 100%%.out'", "-e %j.err", body=body)
    assert run(spec, tmp_path, SWELL_TASK_INDEX="3") == (0, ["output is in of job.sh $(touch y) 7_003 100%.out"])
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert made == {"of job.sh $(touch y) 7_003 100%.out": "7 3 5 9\n", "7.err": "x\n"}


def test_a_python_script_is_run_by_python(tmp_path):
    body = "import os, sys\nprint(sys.argv[0], os.environ['SLURM_NTASKS'], os.environ['SLURM_RESTART_COUNT'])\n"
    assert run(read("-n 2", body=body, shell="#!/usr/bin/env python3"), tmp_path, SWELL_ATTEMPT="7.3") == (
        0,
        ["-c 2 2"],
    )


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=40), max_size=4), st.text(max_size=40))
def test_whatever_a_script_says_it_is_a_job_or_a_refusal_of_a_line(options, body):
    text = "\n".join(["#!/bin/sh", *(f"#SBATCH {one}" for one in options), body])
    said, spec = "", None
    try:
        [found] = read_files([ManifestFile(text, "job.sh")], HERE)
        spec = found.spec
    except Rejected as problem:
        said = str(problem)
    assert 0 < len(said) < 1500 if spec is None else JobSpec.from_document(spec.to_document()) == spec


def test_the_documentation_names_every_option():
    text = DOCUMENT.read_text()
    assert [name for name in (*USED, *IGNORED, *REFUSED) if f"`{name}`" not in text] == []
