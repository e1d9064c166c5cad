"""The command line where no server is needed: words, help, completion, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from swell import __version__
from swell.cli.root import COMMANDS, swell

SWELL = str(Path(sys.executable).with_name("swell"))
NEED_A_SERVER = [
    "ps",
    "show x",
    "why x",
    "logs x",
    "events",
    "wait x",
    "cancel x",
    "delete x",
    "nodes",
    "usage",
    "exec x",
]


def call(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(swell, list(words), input=stdin)


def test_two_launchers_at_once_are_refused(state):
    """Incident: of `--torchrun --accelerate` the last won, without a word."""
    for first, second in (("--torchrun", "--accelerate"), ("--accelerate", "--mpi")):
        done = call("run", first, second, "--", "train.py")
        said = f"{first} and {second} are both given; use only one of them"
        assert (done.exit_code, done.output) == (125, f"swell: {said}\n")
    assert not state.exists()


def test_a_variable_that_no_shell_could_read_is_refused(state):
    done = call("run", "--env", "1A=3", "--", "true")
    said = "--env '1A=3': '1A' is not a variable name; use letters, digits and _, and no digit first"
    assert (done.exit_code, done.output) == (125, f"swell: {said}\n")
    assert not state.exists()


def test_an_option_of_which_only_one_counts_is_refused_twice(state):
    """Of `--notify a --notify b` only b was told, without a word."""
    done = call("run", "--notify", "a", "--notify", "b", "--", "true")
    assert (done.exit_code, "it is given 2 times, and only one counts; give it once" in done.output) == (125, True)
    assert not state.exists()


def test_a_format_without_a_dry_run_is_refused(state):
    done = call("submit", "-o", "json", "job.yaml")
    said = "Error: -o is of --dry-run, which submits nothing; without it, ids are printed"
    assert (done.exit_code, done.output.splitlines()[-1]) == (2, said)
    assert not state.exists()


# -- help ----------------------------------------------------------------------------------------------------------


def test_help_lists_every_command_with_what_it_does():
    shown = call("--help").output
    for name, (_, _, text) in COMMANDS.items():
        assert f"  {name} " in shown
        assert text in shown
    assert "swell run -- python train.py" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_says_what_it_does_and_explains_every_option(name):
    result = call(name, "--help")
    assert result.exit_code == 0
    command = swell.get_command(click.Context(swell), name)
    assert command is not None
    assert command.help
    assert len(command.help) > 20
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.opts} is not explained"
            assert max(option.opts, key=len) in result.output


@pytest.mark.parametrize(
    ("name", "essential"),
    [
        ("up", "are stored in the state folder"),
        ("down", "Running jobs keep running"),
        ("run", "swell run --gpus 2 --time 2h -- python train.py"),
        ("run", "Ctrl-C asks whether to detach or to cancel; without a terminal, it cancels the job"),
        ("run", "If Swell itself fails, the exit code is 125"),
        ("submit", "apiVersion: swell/v1"),
        ("ps", "first the active jobs"),
        ("show", "what it requested, where it ran, what happened"),
        ("why", "what to do"),
        ("logs", "standard output and standard error together"),
        ("events", "what happened, when, and who did it"),
        ("wait", "Exits with the job's exit code"),
        ("cancel", "SIGTERM and, after the grace period, SIGKILL"),
        ("delete", "Cancel a running job before you delete it"),
        ("nodes", "with -o wide, also who holds each GPU"),
        ("usage", "Deleted jobs still count"),
        ("exec", "with the job's folder, environment and GPUs"),
        ("completion", "~/.bashrc"),
    ],
)
def test_help_of_a_command_tells_the_essentials(name, essential):
    assert essential in " ".join(call(name, "--help").output.split())


SHORTER = {
    "mounts": "mount",
    "ports": "port",
    "launcher": "torchrun",
    "uploaded": "upload",
    "inputs": "input",
    "outputs": "output",
}


def test_every_option_of_the_manifest_has_its_option_of_run():
    from swell.manifests.gpus import IDLE
    from swell.manifests.native import SPEC

    shown = call("run", "--help").output
    parts = {"minGpuUtilization", "utilizationWindow"}  # of the one that is a mapping
    only_in_files = {"roles", "secrets", "nodeSelector", "tolerations", "volumes"}  # lists and mappings
    for field in (set(SPEC) | parts) - {"command", *only_in_files, *IDLE}:
        option = re.sub("([A-Z])", r"-\1", field).lower()
        one = SHORTER.get(option, option)  # given once for each; by its name
        assert f"--{one} " in shown


def test_the_version_is_told():
    assert call("--version").output == f"swell {__version__}\n"


def test_help_costs_nothing_that_a_server_needs():
    code = (
        "import sys; sys.argv = ['swell', '--help']\n"
        "from swell.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    assert loaded.isdisjoint({"fastapi", "pydantic", "sqlalchemy", "uvicorn", "yaml", "alembic", "rich", "asyncio"})


def test_a_server_here_costs_nothing_that_one_elsewhere_needs(state):
    code = (
        "import sys; sys.argv = ['swell', 'ps']\n"
        "from swell.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code)\n"
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    ended, loaded = done.stdout.splitlines()
    assert ended == b"1"  # none runs
    elsewhere = {"swell.client.remote", "swell.client.tokens", "swell.client.login"}
    assert elsewhere.isdisjoint(json.loads(loaded))


# -- misspelt words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (["cancle", "5"], "unknown command 'cancle'; did you mean 'cancel'?"),
        (["frobnicate"], "unknown command 'frobnicate'; the commands are: up, down, run, submit, ps, "),
        (["ps", "--al"], "Did you mean"),
        (["ps", "--frobnicate"], "Try 'swell ps --help' for help.\n\nError: No such option '--frobnicate'.\n"),
        (["ps", "--users"], "Did you mean"),
        (
            ["run", "--memory-limit", "1"],
            "(Did you mean one of: '--cpu-limit', '--gpu-memory', '--memory'?)",
        ),
        (["squeue"], "unknown command 'squeue'; in Swell, use `swell ps`"),
        (["status"], "unknown command 'status'; in Swell, use `swell ps`, or `swell show JOB` for one job"),
        (["ps", "-o", "jsn"], "'jsn' is not one of 'table', 'wide', 'json', 'yaml'"),
        (["ps", "extra"], "unexpected extra argument"),
        (["ps", "--limit", "0"], "0 is not in the range x>=1"),
        (["show"], "Missing argument 'JOB'"),
        (["usage", "--by", "job"], "'job' is not one of 'user', 'day', 'user,day'"),
        (["usage", "--days", "0"], "0 is not in the range x>=1"),
        (["submit"], "name a manifest file, for example: swell submit job.yaml"),
        (["logs", "--rank", "-1", "x"], "-1 is not in the range x>=0"),
        (["logs", "--tail", "x", "x"], "'x' is not a valid integer"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        (["up", "--port", "70000"], "70000 is not in the range 0<=x<=65535"),
    ],
)
def test_a_misspelt_word_is_refused_with_2_and_the_nearest_one_named(state, words, said):
    result = call(*words)
    assert result.exit_code == (125 if words[0] == "run" else 2)
    assert said in result.output
    assert not state.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["run", "--gpsu", "2", "--", "true"],
            "No such option '--gpsu'. (Did you mean one of: '--cpus', '--gpus', '--input'?)",
        ),
        (["run", "--gpus"], "requires an argument"),
        (["run"], "Missing argument '[--] COMMAND...'"),
        (["wait"], "Missing argument 'JOB...'"),
        (["wait", "--tiemout", "5", "x"], "Did you mean '--timeout'?"),
        (["wait", ""], "JOB is empty; give a job's id or name (`swell ps` lists them)"),
        (["wait", "--timeout", "soon", "x"], "swell: --timeout: 'soon' is not a duration; write 90s, 30m, 2h, "),
        (["run", "--env", "HOME", "--", "true"], "swell: --env 'HOME' is not NAME=VALUE; on this machine, jobs inh"),
        (["run", "--env", "=x", "--", "true"], "swell: --env '=x' is not NAME=VALUE; "),
    ],
)
def test_a_failure_of_swell_itself_is_125_where_the_code_would_be_the_jobs(state, words, said):
    result = call(*words)
    assert result.exit_code == 125
    assert said in " ".join(result.output.split())
    assert not state.exists()


@pytest.mark.parametrize("words", NEED_A_SERVER)
def test_without_a_server_it_is_said_how_to_start_one_and_nothing_is_made(state, words):
    result = call(*words.split())
    said = (
        f"swell: no server is running for {state}; start one with `swell up -d`, or name another folder with --state\n"
    )
    assert (result.exit_code, result.output) == (125 if words.startswith(("wait", "exec")) else 1, said)
    assert not state.exists()


def test_stopping_what_does_not_run_is_fine(state):
    result = call("down")
    assert (result.exit_code, result.output) == (0, f"swell: no server is running for {state}\n")


@pytest.mark.parametrize("words", ["show", "why", "logs", "cancel", "delete"])
def test_an_empty_name_is_refused_before_anything_is_asked(state, words):
    """`swell delete "$JOB"` with nothing in JOB said "job  is deleted"."""
    result = call(words, "")
    assert result.exit_code == 2
    assert "JOB is empty; give a job's id or name (`swell ps` lists them)" in result.output


@pytest.mark.parametrize("command", ["cancel --grace", "logs --since"])
def test_a_duration_that_cannot_be_read_names_its_option(state, command):
    result = call(*command.split(), "soon", "x")
    option = command.split()[1]
    said = f"swell: {option}: 'soon' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00\n"
    assert (result.exit_code, result.output) == (2, said)


# -- up ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus", "two"], "--gpus: 'two' is not a number of GPUs; write a number such as 2, or auto"),
        (
            ["--gpus", "1..4"],
            "--gpus: '1..4' is not a number of GPUs; write a number such as 2, or auto",
        ),
        (["--gpus", "-1"], "--gpus: '-1' is not a number of GPUs; write a number such as 2, or auto"),
        (["--gpu-memory", "lots"], "--gpu-memory: 'lots' is not an amount of memory; write 512MiB, 8GiB or 1.5TiB"),
        (["--cpus", "many"], "--cpus: 'many' is not a number of CPUs; write 2, 0.5 or 500m"),
        (["--keep", "long"], "--keep: 'long' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_and_nothing_is_remembered(state, words, said):
    result = call("up", "-d", *words)
    assert (result.exit_code, result.output) == (2, f"swell: {said}\n")
    assert not state.exists()


# -- submit --------------------------------------------------------------------------------------------------------


def test_a_manifest_that_is_not_there_is_refused_before_a_server_is_started(state, tmp_path):
    result = call("submit", "-f", "missing.yaml")
    said = "swell: missing.yaml: No such file or directory; name a readable manifest\n"
    assert (result.exit_code, result.output) == (2, said)
    result = call("submit", "-f", str(tmp_path))
    assert (result.exit_code, result.output.endswith(": Is a directory; name a readable manifest\n")) == (
        2,
        True,
    )
    assert not state.exists()


def test_a_manifest_of_50_megabytes_is_refused_unread(state, tmp_path):
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(50_000_000)
    result = call("submit", "-f", "huge.yaml")
    said = "swell: huge.yaml is larger than 1048576 bytes, the maximum for a manifest; split it\n"
    assert (result.exit_code, result.output) == (2, said)
    assert not state.exists()


def test_a_manifest_from_standard_input_is_cut_off_when_it_is_too_large(state):
    result = call("submit", "-f", "-", stdin="x" * 1_100_000)
    assert result.exit_code == 2
    assert "swell: - is larger than 1048576 bytes" in result.output
    assert not state.exists()


def test_a_manifest_that_is_no_utf8_is_refused_with_the_place(state, tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    result = call("submit", "-f", "latin.yaml")
    said = "swell: latin.yaml is not UTF-8 text (byte 9); a manifest is YAML\n"
    assert (result.exit_code, result.output) == (2, said)


# -- the shell -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_every_shell(shell):
    result = call("completion", shell)
    assert result.exit_code == 0
    assert "_SWELL_COMPLETE" in result.stdout
    assert f"{shell}_complete" in result.stdout


@pytest.mark.parametrize(
    ("words", "cword", "found"),
    [("swell ", 1, "run"), ("swell ca", 1, "cancel"), ("swell run --gp", 2, "--gpus"), ("swell ps -o j", 3, "json")],
)
def test_commands_options_and_values_are_completed(state, words, cword, found):
    env = {**os.environ, "_SWELL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(cword)}
    done = subprocess.run([SWELL], env=env, capture_output=True, text=True, check=False)
    assert f"plain,{found}" in done.stdout.splitlines()


def test_completing_a_job_without_a_server_is_silent(state):
    env = {**os.environ, "_SWELL_COMPLETE": "bash_complete", "COMP_WORDS": "swell show ", "COMP_CWORD": "2"}
    done = subprocess.run([SWELL], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert not state.exists()


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]])
def test_a_pipe_that_is_closed_early_is_no_error_message(words):
    with subprocess.Popen([SWELL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_words_for_a_container_runtime_are_refused_when_no_shell_could_split_them(state):
    result = call("up", "-d", "--container-command", "podman 'half")
    said = 'swell: --container-command "podman \'half" cannot be split into words: No closing quotation\n'
    assert (result.exit_code, result.output) == (2, said)
    assert not state.exists()


@pytest.mark.parametrize("program", ["kubectl", "./podman", "sudo podman", "''"])
def test_a_container_command_is_podman_or_docker(state, program):
    result = call("up", "-d", "--container-command", program)
    first = program.split()[0].strip("'")
    said = f"swell: --container-command {first!r} must be podman or docker, by name or absolute path\n"
    assert (result.exit_code, result.output) == (2, said)
    assert not state.exists()
