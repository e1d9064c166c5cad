"""`srun` and `scontrol` inside batch scripts: every option of Slurm's, and every way in which a program is started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from swell.manifests import Context, ManifestFile, read_files
from swell.manifests.sbatch import SCRIPT_BYTES_MAX
from swell.manifests.srun_options import OPTIONS, SrunOption, SrunOutcome, Takes

from .kubernetes import CONTEXT

DOCUMENT = Path(__file__).parents[2] / "docs" / "slurm.md"
WORD_BYTES_MAX = 128 * 1024  # of one argument, by the kernel


class Batch:
    """Runs scripts as a worker does, in a folder, with a home of their own."""

    def __init__(self, folder: Path, context: Context = CONTEXT) -> None:
        self.folder = folder / "work"
        self.home = folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        self._context = context

    def run(self, body: str, *options: str, shell: str = "#!/bin/sh", **env: str) -> tuple[int, list[str], list[str]]:
        """The exit code, the lines of standard output and those of standard error."""
        text = "\n".join([shell, *(f"#SBATCH {one}" for one in options), body, ""])
        [found] = read_files([ManifestFile(text, "job.sh")], self._context)
        told = {"SWELL_JOB_ID": "7", "SWELL_ATTEMPT": "7.1", "SWELL_TASK_INDEX": "0", "HOME": str(self.home)}
        done = subprocess.run(
            found.spec.roles[0].command,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], **told, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    def files(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in self.folder.iterdir()}


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path)


#: NAME or NAME:LETTER of every option in the manual of srun, Slurm 22.05
MANUAL = """
accel-bind account:A acctg-freq bb bbf bcast bcast-exclude begin:b chdir:D cluster-constraint clusters:M comment
compress constraint:C container contiguous core-spec:S cores-per-socket cpu-bind cpu-freq cpus-per-gpu
cpus-per-task:c deadline delay-boot dependency:d disable-status:X distribution:m epilog error:e exact exclude:x
exclusive export extra-node-info:B gid gpu-bind gpu-freq gpus:G gpus-per-node gpus-per-socket gpus-per-task gres
gres-flags help:h het-group hint hold:H immediate:I input:i job-name:J jobid kill-on-bad-exit:K label:l licenses:L
mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout multi-prog network nice
no-allocate:Z no-kill:k nodefile:F nodelist:w nodes:N ntasks:n ntasks-per-core ntasks-per-gpu ntasks-per-node
ntasks-per-socket open-mode output:o overcommit:O overlap oversubscribe:s partition:p power prefer preserve-env:E
priority profile prolog propagate pty qos:q quiet:Q quit-on-interrupt reboot relative:r reservation resv-ports
send-libs signal slurmd-debug sockets-per-node spread-job switches task-epilog task-prolog test-only thread-spec
threads:T threads-per-core time:t time-min tmp uid unbuffered:u usage use-min-nodes verbose:v version:V wait:W wckey
x11
"""


# -- every option --------------------------------------------------------------------------------------------

ACCEPTED = {
    "chdir": "/",
    "export": "ALL",
    "gpus-per-task": "0",
    "jobid": "7",
    "input": "none",
    "open-mode": "append",
    "output": "all",
    "error": "all",
    "time": "5",
}


def spellings(one: SrunOption) -> list[str]:
    """Every way to write it, with a value where it takes one."""
    value = ACCEPTED.get(one.name, "1")
    words = {
        Takes.NONE: [f"--{one.name}"],
        Takes.PERHAPS: [f"--{one.name}", f"--{one.name}={value}"],
        Takes.VALUE: [f"--{one.name} {value}", f"--{one.name}={value}"],
    }[one.takes]
    if one.letter:
        words += [f"-{one.letter}"] if one.takes is not Takes.VALUE else [f"-{one.letter} {value}"]
        words += [f"-{one.letter}{value}"] if one.takes is not Takes.NONE else []
    return words


def test_no_option_takes_its_value_for_the_program_or_the_program_for_its_value(batch):
    """One script: a step for each spelling of each option that does not refuse or print something else."""
    prints = {"help", "usage", "version"}
    asked = [
        way
        for one in OPTIONS
        if one.outcome is not SrunOutcome.REFUSED and one.name not in prints
        for way in spellings(one)
    ]
    code, out, err = batch.run("\n".join(f"srun {way} printf '%s\\n' '{way}'" for way in asked))
    labels = {"--label": "0: ", "-l": "0: "}
    assert (code, out, err) == (0, [labels.get(way, "") + way for way in asked], [])


def test_what_would_mean_something_else_is_refused_by_name(batch):
    refused = [(one, way) for one in OPTIONS if one.outcome is SrunOutcome.REFUSED for way in spellings(one)]
    code, out, err = batch.run("\n".join(f"srun {way} echo started; echo $?" for _, way in refused))
    assert (code, out) == (0, ["2" for _ in refused])
    assert err == [f"srun: --{one.name} {one.meaning}" for one, _ in refused]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("srun --no-such true", "--no-such is no option of srun; docs/slurm.md of Swell lists the options"),
        ("srun -n", "-n has no value; write -n VALUE"),
        ("srun -n 0 true", "-n 0 is no number of tasks"),
        ("srun --label=1 true", "--label takes no value"),
        ("srun --jobid 8 true", "--jobid 8 is another job; leave it out"),
        ("srun --time soon true", "--time is no time; write minutes, 1:30:00 or 2-12"),
        ("srun --export=1x=2 true", "--export names 1x=2, which is no variable"),
        ("srun --gpus-per-task=2 true", "--gpus-per-task 2 for 1 tasks: the job has 0 GPUs"),
        ("srun --", "no command; write srun PROGRAM ARGUMENT..."),
    ],
)
def test_a_mistake_is_said_in_one_line(batch, line, said):
    assert batch.run(line) == (2, [], [f"srun: {said}"])


def test_every_option_of_slurms_own_manual_is_known_with_its_letter():
    found = {name: letter for name, _, letter in (word.partition(":") for word in MANUAL.split())}
    known = {one.name: one.letter for one in OPTIONS}
    assert {name: letter for name, letter in found.items() if known.get(name) != letter} == {}


def test_the_documentation_names_every_option():
    text = DOCUMENT.read_text().partition("## The options of srun")[2]
    assert [one.name for one in OPTIONS if f"`{one.name}`" not in text] == []


def test_the_longest_script_is_still_one_word_for_the_kernel():
    body = "#" * (SCRIPT_BYTES_MAX - 100)
    [found] = read_files([ManifestFile(f"#!/bin/sh\n#SBATCH --array=0-9\n{body}\n", "job.sh")], CONTEXT)
    assert max(len(word.encode()) for word in found.spec.roles[0].command) < WORD_BYTES_MAX


# -- what the kept options do --------------------------------------------------------------------------------


def test_variables_are_given_to_the_step(batch):
    """`all` exports it before; a step sees what its option says."""
    body = """\
export LR=0.5 OTHER=o
srun --export=ALL,LR=0.1 sh -c 'echo $LR $OTHER'
srun --export LR=0.2 sh -c 'echo $LR .$OTHER.'
srun --export=OTHER sh -c 'echo .$LR. $OTHER'
srun --export=NONE sh -c 'echo .$LR.$OTHER. $SLURM_JOB_ID $SWELL_ATTEMPT'
srun --export="ALL,A='x,y',B=z" -n 1 sh -c 'echo $A $B $LR'
"""
    one = ["0.1 o", "0.2 ..", ".. o", "... 7 7.1"]
    assert batch.run(body, "-n 2") == (0, [line for line in one for _ in range(2)] + ["x,y z 0.5"], [])


def test_each_task_has_its_own_file_or_all_have_one(batch):
    body = """\
srun --output=steps-%t.txt --error=%x.%j.%3t.err sh -c 'echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2'
srun -o both.txt -n1 sh -c 'echo out; echo err >&2'
srun -o both.txt --open-mode=append -n 1 echo again
srun -o 1 sh -c 'echo only $SLURM_PROCID'
srun -o none echo nothing
srun -i both.txt -n 1 cat
srun -o '100%%' -n 1 true
"""
    assert batch.run(body, "-n 2") == (0, ["only 1", "out", "err", "again"], [])
    assert batch.files() == {
        "steps-0.txt": "out 0\n",
        "steps-1.txt": "out 1\n",
        "job.sh.7.000.err": "err 0\n",
        "job.sh.7.001.err": "err 1\n",
        "both.txt": "out\nerr\nagain\n",
        "100%": "",
    }


def test_a_step_runs_in_its_folder(batch):
    assert batch.run("srun --chdir=/ pwd; srun -D / pwd; srun pwd") == (0, ["/", "/", str(batch.folder)], [])


def test_a_label_is_the_tasks_number_and_the_exit_code_stays(batch):
    body = "srun -l -n 2 sh -c 'echo a; echo b >&2; exit $SLURM_PROCID'"
    code, out, err = batch.run(body)
    assert (code, sorted(out), sorted(err)) == (1, ["0: a", "1: a"], ["0: b", "1: b"])
    assert batch.run("srun -ln2 -o labelled echo x") == (0, [], [])
    assert sorted(batch.files()["labelled"].splitlines()) == ["0: x", "1: x"]


def test_numbers_of_tasks_cpus_and_gpus(batch):
    body = """\
srun --ntasks-per-node=2 -N 2 echo four
srun -n2 --gpus-per-task a100:1 sh -c 'echo $CUDA_VISIBLE_DEVICES $SLURM_NTASKS' | sort
srun -c4 -n 1 sh -c 'echo $SLURM_CPUS_PER_TASK'
"""
    expected = ["four"] * 4 + ["a 2", "b 2", "4"]
    assert batch.run(body, "-G 2", CUDA_VISIBLE_DEVICES="a,b") == (0, expected, [])


@pytest.mark.parametrize(
    ("text", "seconds"), [("1", 60), ("0:2", 2), ("1:00:01", 3601), ("1-2", 93600), ("1-2:3:4", 93784)]
)
def test_a_step_has_a_time_limit_in_slurms_forms(batch, text, seconds):
    programs = batch.folder / "bin"
    programs.mkdir()
    (programs / "timeout").write_text('#!/bin/sh\necho "$@"\n')
    (programs / "timeout").chmod(0o755)
    told = f"--kill-after=30 {seconds} sleep 9"
    assert batch.run(f"PATH={programs}:$PATH; srun -t {text} sleep 9") == (0, [told], [])


# -- who finds it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "srun -n 2 echo hello",
        "timeout 20 srun -n 2 echo hello",
        "sh -c 'srun -n 2 echo hello'",
        "bash -c 'srun -n 2 echo hello'",
        'python3 -c \'import subprocess; subprocess.run(["srun", "-n", "2", "echo", "hello"], check=True)\'',
        "echo srun -n 2 echo hello | xargs env",
    ],
)
@pytest.mark.parametrize("shell", ["#!/bin/sh", "#!/bin/bash"])
def test_a_child_of_the_script_finds_srun(batch, line, shell):
    assert batch.run(line, shell=shell) == (0, ["hello", "hello"], [])


def test_a_python_script_finds_srun(batch):
    body = "import subprocess\nsubprocess.run(['srun', '-n', '2', 'echo', 'hello'], check=True)"
    assert batch.run(body, shell="#!/usr/bin/env python3") == (0, ["hello", "hello"], [])


def test_a_home_that_cannot_be_used_is_no_obstacle(batch, tmp_path):
    (tmp_path / "file").write_text("")
    for home in (str(tmp_path / "file" / "below"), ""):
        assert batch.run("srun echo hello", HOME=home, TMPDIR=str(tmp_path)) == (0, ["hello"], [])


def test_the_programs_are_written_once_for_all_jobs_of_a_user(batch):
    places = {tuple(batch.run("command -v srun; command -v scontrol")[1]) for _ in range(2)}
    [(srun, _)] = places
    assert srun.startswith(str(batch.home / ".cache" / "swell" / "slurm-"))
    assert sorted(file.name for file in Path(srun).parent.iterdir()) == ["scontrol", "srun"]


def test_a_signal_to_srun_reaches_its_tasks_and_they_are_waited_for(batch):
    body = "timeout --foreground 1 srun -n 2 sh -c 'trap \"echo saved; exit 3\" TERM; sleep 30 & wait'; echo $?"
    assert batch.run(body) == (0, ["saved", "saved", "124"], [])


def test_scontrol_prints_the_machines_of_a_list(batch):
    body = """\
scontrol show hostnames | diff - <(hostname) && echo own
scontrol show hostnames "$SLURM_JOB_NODELIST" | diff - <(hostname) && echo own
scontrol show hostnames 'a[1-3,07-09],b,c[1-2]-x[0-1]'
scontrol show job 7; echo $?
"""
    names = ["a1", "a2", "a3", "a07", "a08", "a09", "b", "c1-x0", "c1-x1", "c2-x0", "c2-x1"]
    said = "scontrol: only `scontrol show hostnames [LIST]` is known here; see swell show"
    assert batch.run(body, shell="#!/bin/bash") == (0, ["own", "own", *names, "2"], [said])
