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


# -- help ----------------------------------------------------------------------------------------------------------


def test_help_lists_every_command_with_what_it_does():
    shown = call("--help").output
    for name, (_, text) in COMMANDS.items():
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
        ("up", "is remembered in the state folder"),
        ("down", "Running jobs go on"),
        ("run", "swell run --gpus 2 --time 2h -- python train.py"),
        ("run", "Ctrl-C asks what to do; without a terminal it cancels"),
        ("run", "A failure of Swell itself exits with 125"),
        ("submit", "apiVersion: swell/v1"),
        ("ps", "active ones first"),
        ("show", "what was asked, where it ran, what happened"),
        ("why", "what to do"),
        ("logs", "standard output and error together"),
        ("events", "who did it, and when"),
        ("wait", "Exits with the job's own code"),
        ("cancel", "SIGTERM, then after the grace SIGKILL"),
        ("delete", "must be cancelled first"),
        ("nodes", "who holds each GPU"),
        ("usage", "Deleting jobs changes nothing here"),
        ("exec", "with its environment and GPUs; a shell by default"),
        ("completion", "~/.bashrc"),
    ],
)
def test_help_of_a_command_tells_the_essentials(name, essential):
    assert essential in " ".join(call(name, "--help").output.split())


def test_every_option_of_the_manifest_has_its_option_of_run():
    from swell.manifests.idle import FIELDS
    from swell.manifests.native import SPEC

    shown = call("run", "--help").output
    parts = {"minGpuUtilization", "utilizationWindow"}  # of the one that is a mapping
    for field in (set(SPEC) | parts) - {"command", *FIELDS}:
        option = re.sub("([A-Z])", r"-\1", field).lower()
        one = {"mounts": "mount", "ports": "port", "launcher": "torchrun"}.get(
            option, option
        )  # given once for each; by its name
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
        (["rnu"], "there is no command 'rnu'; did you mean 'run'?"),
        (["cancle", "5"], "there is no command 'cancle'; did you mean 'cancel'?"),
        (["frobnicate"], "there is no command 'frobnicate'; there are: up, down, run, submit, ps, "),
        (["ps", "--al"], "Did you mean"),
        (
            ["ps", "--frobnicate"],
            "No such option '--frobnicate'. There are: --all, --user, --all-users, --watch, --limit, ",
        ),
        (["ps", "-o", "jsn"], "'jsn' is not one of 'table', 'wide', 'json', 'yaml'"),
        (["ps", "extra"], "unexpected extra argument"),
        (["ps", "--limit", "0"], "0 is not in the range x>=1"),
        (["show"], "Missing argument 'JOB'"),
        (["usage", "--by", "job"], "'job' is not one of 'user', 'day', 'user,day'"),
        (["usage", "--days", "0"], "0 is not in the range x>=1"),
        (["submit"], "Missing option '-f' / '--file'"),
        (["logs", "--rank", "-1", "x"], "-1 is not in the range x>=0"),
        (["logs", "--tail", "x", "x"], "'x' is not a valid integer"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        (["up", "--port", "70000"], "70000 is not in the range 0<=x<=65535"),
    ],
)
def test_a_misspelt_word_is_refused_with_2_and_the_nearest_one_named(state, words, said):
    result = call(*words)
    assert result.exit_code == 2
    assert said in result.output
    assert not state.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--gpsu", "2", "--", "true"], "No such option '--gpsu'. (Did you mean one of: '--cpus', '--gpus'?)"),
        (["run", "--gpus"], "requires an argument"),
        (["run"], "Missing argument '[--] COMMAND...'"),
        (["wait"], "Missing argument 'JOB...'"),
        (["wait", "--tiemout", "5", "x"], "Did you mean '--timeout'?"),
        (["wait", ""], "a job is named by its id or its name, and this is empty; `swell ps` lists them"),
        (["wait", "--timeout", "soon", "x"], "swell: --timeout: 'soon' is not a duration; write 90s, 30m, 2h, "),
        (["run", "--env", "HOME", "--", "true"], "swell: --env 'HOME' is not NAME=VALUE; your own environment is pas"),
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
    said = f"swell: no server runs for {state}; start one with `swell up -d`, or name another folder with --state\n"
    assert (result.exit_code, result.output) == (125 if words.startswith(("wait", "exec")) else 1, said)
    assert not state.exists()


def test_stopping_what_does_not_run_is_fine(state):
    result = call("down")
    assert (result.exit_code, result.output) == (0, f"swell: nothing runs for {state}\n")


@pytest.mark.parametrize("words", ["show", "why", "logs", "cancel", "delete"])
def test_an_empty_name_is_refused_before_anything_is_asked(state, words):
    """`swell delete "$JOB"` with nothing in JOB said "job  is deleted"."""
    result = call(words, "")
    assert result.exit_code == 2
    assert "a job is named by its id or its name, and this is empty; `swell ps` lists them" in result.output


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
        (["--gpus", "two"], "--gpus: 'two' is neither a count nor a range; write 2 or 1..4"),
        (["--gpus", "1..4"], "--gpus: '1..4' is a range, but a machine has a number of GPUs; write 4, or auto"),
        (["--gpus", "-1"], "--gpus: '-1' is neither a count nor a range; write 2 or 1..4"),
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
    said = "swell: missing.yaml: No such file or directory; name a manifest that can be read\n"
    assert (result.exit_code, result.output) == (2, said)
    result = call("submit", "-f", str(tmp_path))
    assert (result.exit_code, result.output.endswith(": Is a directory; name a manifest that can be read\n")) == (
        2,
        True,
    )
    assert not state.exists()


def test_a_manifest_of_50_megabytes_is_refused_unread(state, tmp_path):
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(50_000_000)
    result = call("submit", "-f", "huge.yaml")
    said = "swell: huge.yaml is larger than 1048576 bytes, the most a manifest may have; split it\n"
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
