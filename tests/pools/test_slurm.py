"""The slurm kind, with commands of Slurm that say what a test wants."""

from __future__ import annotations

import itertools
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pools.contract import TOKEN, PoolContract, order
from pools.fake_slurm import FakeSlurm
from swell.errors import Rejected, Unavailable
from swell.machine.worker_folder import GIVEN_TOKEN
from swell.pools.backend import BackendWorker, WorkerOrder, WorkerState
from swell.pools.kinds import find_kind
from swell.pools.options import PoolOptions, read_pool_options
from swell.pools.slurm.backend import SlurmBackend
from swell.pools.slurm.render import SlurmOptions, read_slurm_options, render_arguments, render_script

LOGS = Path("/shared/logs")


def options(folder: Path, pool: str = "lab") -> PoolOptions:
    told = {"server": "https://box.lab:8443", "token_file": "/t", "name": pool}
    return read_pool_options("slurm", told, folder=folder)


class SlurmWorld:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slurm = FakeSlurm(folder)

    def backend(self, pool: str) -> SlurmBackend:
        return SlurmBackend(options(self.folder, pool), SlurmOptions(log_folder=self.folder / "logs"))

    def start(self, backend_id: str) -> None:
        self.slurm.set(backend_id, state="RUNNING", reason="None")

    def end(self, backend_id: str, exit_code: int) -> None:
        state = "FAILED" if exit_code else "COMPLETED"
        self.slurm.set(
            backend_id, state=state, reason="NonZeroExitCode" if exit_code else "None", exit=f"{exit_code}:0"
        )

    def write_log(self, backend_id: str, text: bytes) -> None:
        with Path(self.slurm.jobs[backend_id]["log"]).open("ab") as file:
            file.write(text)

    def cut(self) -> None:
        self.slurm.fail("*", "Unable to contact slurm controller (connect failure)")

    def refuse(self) -> None:
        self.slurm.fail("sbatch", "Batch job submission failed: Invalid partition name specified")


@pytest.fixture
def slurm_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    world = SlurmWorld(tmp_path)
    monkeypatch.setenv("PATH", world.slurm.path)
    return world


class TestSlurm(PoolContract):
    @pytest.fixture
    def world(self, slurm_world: SlurmWorld) -> SlurmWorld:
        return slurm_world


def launched(world: SlurmWorld, **values: Any) -> tuple[WorkerOrder, BackendWorker]:
    """One worker whose job has these values in Slurm."""
    wanted = order()
    backend_id = world.backend("lab").launch(wanted)
    world.slurm.set(backend_id, **values)
    (found,) = world.backend("lab").observe()
    return wanted, found


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", WorkerState.PENDING),
        ("CONFIGURING", WorkerState.PENDING),
        ("REQUEUED", WorkerState.PENDING),
        ("REQUEUE_HOLD", WorkerState.PENDING),
        ("SPECIAL_EXIT", WorkerState.PENDING),
        ("RUNNING", WorkerState.RUNNING),
        ("COMPLETING", WorkerState.RUNNING),  # also before Slurm starts it again: codalab-worksheets PR #2391
        ("SUSPENDED", WorkerState.RUNNING),
        ("STOPPED", WorkerState.RUNNING),
        ("COMPLETED", WorkerState.ENDED),
        ("CANCELLED", WorkerState.ENDED),
        ("FAILED", WorkerState.ENDED),
        ("TIMEOUT", WorkerState.ENDED),
        ("PREEMPTED", WorkerState.ENDED),
        ("NODE_FAIL", WorkerState.ENDED),
        ("OUT_OF_MEMORY", WorkerState.ENDED),
        ("DREAMING", WorkerState.UNKNOWN),  # of a Slurm that is newer than we are
    ],
)
def test_each_state_of_slurm_is_one_of_ours_and_keeps_its_name(
    slurm_world: SlurmWorld, word: str, state: WorkerState
) -> None:
    _, found = launched(slurm_world, state=word)
    assert (found.state, found.word) == (state, word)


def test_why_it_waits_and_how_it_ended_are_in_slurms_words(slurm_world: SlurmWorld) -> None:
    wanted, found = launched(slurm_world, reason="QOSMaxGRESPerUser")
    assert found == BackendWorker(wanted.id, "1", WorkerState.PENDING, "PENDING", "QOSMaxGRESPerUser")
    slurm_world.end("1", 3)
    (found,) = slurm_world.backend("lab").observe()
    assert (found.word, found.detail, found.exit_code) == ("FAILED", "NonZeroExitCode, exit code 3", 3)
    assert found.log == str(slurm_world.folder / f"logs/{wanted.id}-1.out")


def test_an_end_that_slurm_saw_proves_that_nothing_runs_and_a_lost_node_proves_nothing(
    slurm_world: SlurmWorld,
) -> None:
    assert launched(slurm_world, state="CANCELLED")[1].is_proof
    slurm_world.slurm.set("1", state="NODE_FAIL")
    assert not slurm_world.backend("lab").observe()[0].is_proof


def test_the_end_of_a_job_that_slurm_started_again_is_that_of_its_last_run(slurm_world: SlurmWorld) -> None:
    """That nothing runs on the node of an earlier run, which Slurm has lost, was taken for proven, too."""
    found = launched(slurm_world, state="CANCELLED", restarts=2)[1]
    assert (found.is_proof, found.last_run) == (True, 2)
    slurm_world.slurm.fail("scontrol", "Invalid job id specified")
    found = slurm_world.backend("lab").observe()[0]  # which run was it?
    assert (found.is_proof, found.last_run) == (False, 0)


def test_without_control_groups_a_process_may_have_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = SlurmWorld(tmp_path / "linuxproc")
    world.slurm.write(world.slurm.read() | {"config": "ProctrackType = proctrack/linuxproc\n"})
    monkeypatch.setenv("PATH", world.slurm.path)
    assert not launched(world, state="CANCELLED")[1].is_proof


def test_where_there_is_accounting_it_tells_of_jobs_that_the_queue_has_forgotten(slurm_world: SlurmWorld) -> None:
    _, found = launched(slurm_world, state="RUNNING")
    slurm_world.slurm.set("1", state="FAILED", exit="1:0", purged=True)
    assert slurm_world.backend("lab").observe() == ()
    state = slurm_world.slurm.read()
    state["config"] = "AccountingStorageType = accounting_storage/slurmdbd\n"
    slurm_world.slurm.write(state)
    (told,) = slurm_world.backend("lab").observe()
    assert (told.id, told.state, told.exit_code) == (found.id, WorkerState.ENDED, 1)


def test_jobs_of_the_same_user_that_are_none_of_ours_are_left_out(slurm_world: SlurmWorld) -> None:
    launched(slurm_world)
    state = slurm_world.slurm.read()
    state["jobs"]["7"] = state["jobs"]["1"] | {"name": "train | me: 100%", "comment": "(null)"}
    state["jobs"]["8"] = state["jobs"]["1"] | {"comment": "swell:lab:of-another-server"}
    slurm_world.slurm.write(state)
    assert [worker.backend_id for worker in slurm_world.backend("lab").observe()] == ["1"]


@pytest.mark.parametrize("garbage", ["slurm_load_jobs error\n", "12\x1fname\n", "x\x1fa\x1fRUNNING\x1f\x1f\n"])
def test_a_listing_that_cannot_be_read_is_no_listing(slurm_world: SlurmWorld, garbage: str) -> None:
    slurm_world.slurm.write(slurm_world.slurm.read() | {"garbage": garbage})
    with pytest.raises(Unavailable, match="cannot be read"):
        slurm_world.backend("lab").observe()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Batch job submission failed: Invalid partition name specified", Rejected),
        ("Batch job submission failed: Invalid account or account/partition combination specified", Rejected),
        ("Batch job submission failed: Requested node configuration is not available", Rejected),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", Unavailable),
        ("Slurm temporarily unable to accept job, sleeping and retrying", Unavailable),
        ("Batch job submission failed: Socket timed out on send/recv operation", Unavailable),
    ],
)
def test_what_sbatch_says_is_quoted_and_told_apart(slurm_world: SlurmWorld, said: str, kind: type[Exception]) -> None:
    slurm_world.slurm.fail("sbatch", said)
    wanted = order()
    with pytest.raises(kind) as failure:
        slurm_world.backend("lab").launch(wanted)
    assert str(failure.value) == f"submitting worker {wanted.id} to slurm: sbatch: error: {said}"
    assert type(failure.value) is kind


def test_a_machine_without_slurm_says_where_to_run_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = SlurmBackend(options(tmp_path), SlurmOptions())
    with pytest.raises(Rejected, match="squeue is not on PATH; run the pool where Slurm's commands are"):
        backend.observe()


def test_a_worker_that_runs_hears_it_from_a_signal_and_its_tasks_from_it(slurm_world: SlurmWorld) -> None:
    launched(slurm_world, state="RUNNING")
    slurm_world.backend("lab").cancel("1")
    slurm_world.backend("lab").cancel("1", is_forced=True)
    assert [words for name, *words in slurm_world.slurm.read()["calls"] if name == "scancel"] == [
        ["--state=PENDING", "1"],
        ["--batch", "--signal=TERM", "1"],
        ["1"],
    ]


def test_the_token_is_in_the_environment_and_in_no_word_and_no_script(slurm_world: SlurmWorld) -> None:
    launched(slurm_world)
    job = slurm_world.slurm.jobs["1"]
    assert job["environment"]["SWELL_WORKER_TOKEN"] == TOKEN
    assert TOKEN not in job["script"]
    assert not any(TOKEN in word for word in job["words"])


def test_nothing_of_the_pools_environment_but_a_few_names_reaches_the_worker(
    slurm_world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    monkeypatch.setenv("SLURM_JOB_ID", "of the job in which the pool runs")
    launched(slurm_world)
    names = slurm_world.slurm.jobs["1"]["environment"].keys() - {"LC_CTYPE"}
    assert names <= {"HOME", "LANG", "LOGNAME", "PATH", "USER", "SWELL_WORKER_TOKEN", "SLURM_CONF", "TMPDIR"}


FULL = {
    "partition": "gpu",
    "account": "vision",
    "qos": "high",
    "nodelist": "node[1-4],big1",
    "exclude": "node2",
    "constraint": "a100&nvlink",
    "gpu_type": "a100",
    "time": "2-00:00:00",
}


def test_every_option_is_one_word_of_sbatch() -> None:
    wanted = order(cpus_milli=1500, gpus=2)
    assert render_arguments(wanted, read_slurm_options(FULL), LOGS) == (
        "--parsable",
        "--requeue",
        f"--job-name={wanted.id}",
        "--comment=swell:lab:c9371e630d4e",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=2",
        "--mem=4096M",
        "--gres=gpu:a100:2",
        "--partition=gpu",
        "--account=vision",
        "--qos=high",
        "--nodelist=node[1-4],big1",
        "--exclude=node2",
        "--constraint=a100&nvlink",
        "--time=2-00:00:00",
        "--signal=B:TERM@90",
        f"--output=/shared/logs/{wanted.id}-%j.out",
        "--open-mode=append",
        "--chdir=/",
        "--export=HOME,LANG,LOGNAME,PATH,USER,SWELL_WORKER_TOKEN",
    )


def test_what_is_not_said_is_left_to_the_cluster() -> None:
    words = render_arguments(order(), SlurmOptions(), LOGS)
    assert not [word for word in words if word.startswith(("--partition", "--account", "--time", "--gres", "--qos"))]


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("text", ["--wrap=reboot", "-Dx", "a b", "a;b", "$(id)", "a\nb", "a'b", "", " ", "x" * 2000])
def test_no_value_becomes_another_option_or_a_command(name: str, text: str) -> None:
    if not text:
        assert read_slurm_options({name: text}) == SlurmOptions()
        return
    with pytest.raises(Rejected, match=f"--{name.replace('_', '-')}"):
        read_slurm_options({name: text})


def run_script(tmp_path: Path, wanted: WorkerOrder, **environment: str) -> list[str]:
    """What the script executes, of an executable that prints its words and the token file's text."""
    program = tmp_path / "swell"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"; env | grep -c SWELL_WORKER_TOKEN; cat "$TOKEN_AT"\n')
    program.chmod(0o755)
    script = render_script(replace(wanted, executable=str(program), folder_prefix=str(tmp_path)), LOGS)
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SWELL_WORKER_TOKEN": TOKEN, **environment}
    done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, env=env, check=True)
    return done.stdout.split("\n")


def test_the_script_starts_the_worker_with_its_token_in_a_file_that_only_it_reads(tmp_path: Path) -> None:
    wanted = order(worker=replace(order().worker, tag="big"))
    token = tmp_path / f"swell-worker-{wanted.id}" / GIVEN_TOKEN
    said = run_script(tmp_path, wanted, TOKEN_AT=str(token))
    assert said[:1] == ["worker"]
    assert said[said.index("--name") + 1] == wanted.id
    assert said[said.index("--token-file") + 1] == str(token)
    assert "--pass-down-termination" in said
    assert said[-2:] == ["0", TOKEN]
    assert [path.stat().st_mode & 0o777 for path in (token.parent, token)] == [0o700, 0o600]


def test_a_worker_that_slurm_starts_again_has_a_name_and_a_folder_of_its_own(tmp_path: Path) -> None:
    wanted = order()
    folder = tmp_path / f"swell-worker-{wanted.id}-r2"
    said = run_script(tmp_path, wanted, SLURM_RESTART_COUNT="2", TOKEN_AT=str(folder / GIVEN_TOKEN))
    pairs = dict(itertools.pairwise(said))  # of what is said twice the last counts
    assert (pairs["--name"], pairs["--folder"]) == (f"{wanted.id}-r2", str(folder))
    assert pairs["--token-file"] == str(folder / GIVEN_TOKEN)


def test_the_kind_is_found_by_its_name() -> None:
    assert find_kind("slurm").legacy.name == "slurm-batch"
