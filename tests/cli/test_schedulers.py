"""run-scheduler and its companions: every flag, as it is typed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from server import Server
from swell.cli.doors import run_scheduler, scheduler

ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, click.Command] = {
    "run-scheduler": run_scheduler.main,
    "scheduler-state": scheduler.state,
    "scheduler-situation": scheduler.situation,
    "scheduler-cancel-job": scheduler.cancel_job,
    "scheduler-get-logs": scheduler.get_logs,
}
SHOW = """
import json, os, sys
print(json.dumps({"argv": sys.argv, "cwd": os.getcwd(), "path": sys.path[1], **os.environ}))
"""


def call(command: str, *words: str) -> Any:
    return CliRunner().invoke(COMMANDS[command], list(words), prog_name=command)


# -- without a server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_does_and_explains_every_option(name):
    shown = call(name, "--help")
    assert shown.exit_code == 0
    assert len(COMMANDS[name].help or "") > 20
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.opts
            assert option.opts[0] in shown.output


def test_every_flag_that_was_documented_is_there():
    assert {word for option in run_scheduler.main.params for word in option.opts} == {
        "job_name",
        "--image_name",
        "--script_path",
        "--custom_dir",
        "--snapshots_dir",
        "--batch_size",
        "--training_set_size",
        "--max_epochs",
        "--is_single_gpu",
        "--disable_gpu_sharing",
        "--estimated_memory",
        "--port_mapping",
        "--est_nhours",
        "--state",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "Missing option '--script_path'"),
        (["--script_path", "x.py"], "Missing argument 'JOB_NAME'"),
        (["x", "--script_path", "x.py", "--est_nhours", "1"], "est_nhours is 1, but must be more than 1"),
        (["x", "--script_path", "x.py", "--est_nhours", "soon"], "'soon' is not a number; write one from 0 to 876000"),
        (["x", "--script_path", "x.py", "--port_mapping", "8888:80"], "port_mapping needs an image"),
        (["x", "--script_path", "x.py", "--image_name", "i", "--port_mapping", "80"], "is not nodePort:containerPort"),
        (["x", "--script_path", "x.py", "--batch_size", "0"], "0 is not in the range x>=1"),
        (["x", "--script_path", "x.py", "--is_single_gpu=maybe"], "'maybe' is not a boolean; write true or false"),
        (["--is_single_gpu", "maybe", "x", "--script_path", "x.py"], "--is_single_gpu: 'maybe' is not a boolean"),
        (["x", "y", "--script_path", "x.py"], "Got unexpected extra argument (y)"),
        (["x", "--script_path", "x.py", "--single_gpu"], "Did you mean"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_2_and_nothing_is_started(state, words, said):
    result = call("run-scheduler", *words)
    assert (result.exit_code, said in " ".join(result.output.split())) == (2, True), result.output
    assert not state.exists()


@pytest.mark.parametrize("words", [["scheduler-state"], ["scheduler-cancel-job", "1"], ["scheduler-get-logs", "1"]])
def test_without_a_server_the_others_say_how_to_start_one(state, words):
    result = call(*words)
    assert (result.exit_code, "start one with `swell up -d`" in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("words", "single", "unshared"),
    [
        ((), None, False),
        (("--is_single_gpu",), True, False),
        (("--is_single_gpu", "True", "--disable_gpu_sharing", "false"), True, False),
        (("--is_single_gpu=false", "--disable_gpu_sharing"), False, True),
        (("--is_single_gpu", "yes", "--disable_gpu_sharing", "off"), True, False),
        (("--is_single_gpu", "1", "--disable_gpu_sharing=no"), True, False),
    ],
)
def test_a_switch_stands_alone_or_is_followed_by_a_word_for_yes_or_no(words, single, unshared):
    line = [*words, "name", "--script_path", "x.py"]
    told = run_scheduler.main.make_context("run-scheduler", line).params
    assert (told["job_name"], told["is_single_gpu"], told["disable_gpu_sharing"]) == ("name", single, unshared)


# -- with one ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("schedulers"), gpus=4) as shared:
        yield shared


def home(tmp_path: Path) -> tuple[Path, Path]:
    """A home with datasets, and code in it."""
    (tmp_path / "datasets").mkdir()
    code = tmp_path / "code"
    code.mkdir()
    (code / "show.py").write_text(SHOW)
    return tmp_path, code


@pytest.mark.slow
def test_a_script_runs_with_the_folders_and_variables_it_was_promised(server, tmp_path):
    folder, code = home(tmp_path)
    words = ["--script_path", "/custom/show.py", "--custom_dir", str(code), "--snapshots_dir", str(folder / "shots")]
    words += ["--batch_size", "16", "--training_set_size", "1000", "--max_epochs", "7", "--est_nhours", "2.5"]
    words += ["--estimated_memory", "2048", "--disable_gpu_sharing"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = server.beside("run-scheduler", "show", *words, HOME=str(folder), PATH=path, PYTHONPATH="/theirs").id
    server.until(job, "succeeded")
    told = json.loads(server.until_output(job, b"\n"))
    assert (told["argv"], told["cwd"]) == ([str(code / "show.py")], str(code))
    assert told["PYTHONPATH"] == f"{ROOT / 'sdk/src'}:/theirs"
    assert told["path"] == str(ROOT / "sdk/src")
    expected = {
        "BATCH_SIZE": "16",
        "TRAINING_SET_SIZE": "1000",
        "EPOCHS_TO_BE_DONE": "7",
        "EPOCHS_DONE": "0",
        "JOB_RESTARTED": "FALSE",
        "NUM_GPUS": "1",
        "NUM_NODES": "1",
        "NODE_RANK": "0",
        "LOCAL_RANK": None,
        "RESERVED_MEM": "2048",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "HEARTBEAT_FREQ": "100",
        "PL_TORCH_DISTRIBUTED_BACKEND": "gloo",
        "JOB_UUID": f"{server.store[:8]}-{job}",
        "SWELL_CUSTOM_DIR": str(code),
        "SWELL_SNAPSHOTS_DIR": str(folder / "shots"),
        "SWELL_DATA_DIR": str(folder / "datasets"),
    }
    assert {name: told.get(name) for name in expected} == expected
    assert {"MASTER_PORT", "TF_CONFIG", "NODELIST"} <= told.keys()
    spec = server.client().show(job)["spec"]
    assert (spec["width_min"], spec["width_max"], spec["estimate_s"], spec["epochs"]) == (1, 1, 9000.0, 7)
    assert spec["roles"][0]["cpus_milli"] == 0


@pytest.mark.slow
def test_a_single_gpu_is_one_gpu_and_a_training_script_saves_in_its_own_snapshot_folder(server, tmp_path):
    shots = tmp_path / "shots"
    words = ["--script_path", str(ROOT / "examples/kubeprofiler/plain.py"), "--snapshots_dir", str(shots)]
    words += ["--max_epochs", "3", "--is_single_gpu", "--disable_gpu_sharing"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = server.beside("run-scheduler", "plain", *words, PATH=path).id
    found = server.until(job, "succeeded")
    assert (found["width_min"], found["width_max"], found["progress"]["epochs_done"]) == (1, 1, 3.0)
    assert [file.name for file in (shots / f"{server.store[:8]}-{job}").iterdir()] == ["weight.json"]
    logs = server.beside("scheduler-get-logs", str(job))
    assert (logs.code, logs.stdout.count("epoch ")) == (0, 3), logs
    assert server.beside("scheduler-get-logs", f"{server.store[:8]}-{job}").stdout == logs.stdout
    other = server.beside("scheduler-get-logs", f"00000000-{job}")
    assert (other.code, "belongs to another installation" in other.stderr) == (2, True), other


@pytest.mark.slow
def test_the_state_lists_jobs_and_a_cancelled_one_is_cancelled(server, tmp_path):
    (tmp_path / "wait.py").write_text("import signal; signal.pause()")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ["--script_path", "wait.py", "--custom_dir", str(tmp_path), "--is_single_gpu", "true"]
    first, second = (server.beside("run-scheduler", name, *words, PATH=path).id for name in ("one", "two"))
    server.until(second, "running")
    shown = server.beside("scheduler-state").stdout
    names = [line.split()[1] for line in shown.splitlines()]
    assert (names[0], {"one", "two"} <= set(names)) == ("NAME", True), shown
    last = server.beside("scheduler-state", "--nlast", "1", "--all_users").stdout.splitlines()
    assert [line.split()[:2] for line in last] == [["ID", "NAME"], [str(second), "two"]]
    assert "RESIZED/PREEMPTED" in server.beside("scheduler-state", "--extended").stdout.splitlines()[0]
    older = server.beside("scheduler-situation", "--all", "--nlast", "1").stdout.splitlines()
    assert [line.split()[:2] for line in older] == [["ID", "NAME"], [str(second), "two"]]
    for job, ref in ((first, str(first)), (second, f"{server.store[:8]}-{second}")):
        done = server.beside("scheduler-cancel-job", ref)
        assert done.code == 0, done
        server.until(job, "cancelled")
    nobody = server.beside("scheduler-state", "--nlast", "3", SUDO_USER="", LOGNAME="nobody-here", USER="nobody-here")
    assert nobody.stdout == "no jobs; to submit one, run: run-scheduler JOB_NAME --script_path FILE\n"
    missing = server.beside("scheduler-cancel-job", "no-such-job")
    assert (missing.code, "there is no job 'no-such-job'" in missing.stderr) == (2, True), missing
