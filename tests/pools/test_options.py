"""What a pool is told, and the command line of its workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pools.contract import TOKEN, order
from swell.cli.pool_process import PoolCommand, keep_command, read_command
from swell.errors import Rejected
from swell.machine.worker_options import FLAGS, FlagKind
from swell.model.pool import pool_of, worker_at
from swell.pools.folder import PoolFolder
from swell.pools.kinds import KINDS, find_kind
from swell.pools.options import POOL_FLAGS, PoolOptions, read_pool_options
from swell.pools.worker_command import words_with_token_variable, worker_words

GIVEN = {"server": "https://box.lab:8443", "token_file": "/t"}


def read(**given: object) -> PoolOptions:
    return read_pool_options("slurm", GIVEN | given, folder=Path("/pools"))


def test_a_pool_is_called_as_its_kind_and_its_workers_go_when_they_are_idle() -> None:
    options = read()
    assert (options.name, options.folder, options.worker.idle_s) == ("slurm", Path("/pools/slurm"), 600.0)
    assert (options.workers_min, options.workers_max, options.cpus_milli, options.memory_mib) == (0, 10, 1000, 2048)


def test_flags_of_workers_are_passed_on_to_them() -> None:
    made = read(tag="big", tag_exclusive=True, idle_s="30", max_workers=3, folder_prefix="/scratch").order(TOKEN)
    assert worker_words(made, token_file=Path("/run/token")) == (
        "swell",
        "worker",
        *("--server", "https://box.lab:8443", "--token-file", "/run/token"),
        *("--folder", f"/scratch/swell-worker-{made.id}", "--name", made.id),
        *("--tag", "big", "--tag-exclusive", "--idle-seconds", "30", "--delete-work-dir-on-exit"),
    )


def test_the_token_is_in_no_command_line() -> None:
    words = words_with_token_variable(order())
    assert TOKEN not in " ".join(words)
    assert words[:2] == ("sh", "-c")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"server": None}, "--server"),
        ({"name": "Lab; rm -rf /"}, "--name"),
        ({"name": "-lab"}, "--name"),
        ({"workers_min": "3", "workers_max": "2"}, "--min-workers 3 is more than --max-workers 2"),
        ({"workers_max": "0"}, "--max-workers 0"),
        ({"workers_max": "many"}, "--max-workers 'many'"),
        ({"launches_max": "0"}, "--launches 0"),
        ({"executable": "swell; reboot"}, "--executable"),
        ({"executable": "--help"}, "--executable"),
        ({"folder_prefix": "scratch"}, "--work-dir-prefix"),
        ({"folder_prefix": "/scratch/../etc"}, "--work-dir-prefix"),
        ({"folder_prefix": "/$HOME"}, "--work-dir-prefix"),
        ({"tag_exclusive": True}, "--tag-exclusive"),
        ({"runs_max": "0"}, "--exit-after-num-runs 0"),
    ],
)
def test_what_cannot_be_is_refused_in_words(given: dict[str, object], said: str) -> None:
    with pytest.raises(Rejected) as refusal:
        read(**given)
    assert said in str(refusal.value)


def test_a_worker_that_is_started_again_is_known_by_its_name() -> None:
    assert [worker_at(f"lab-0123abcd{more}") for more in ("", "-r12", "-2")] == [
        "lab-0123abcd",
        "lab-0123abcd",
        "lab-0123abcd-2",
    ]
    assert (pool_of("a-b-0123abcd"), pool_of("lab-0123ABCD"), pool_of("lab")) == ("a-b", None, None)


def test_the_help_of_a_pool_says_when_its_workers_exit_and_that_of_a_worker_that_it_stays() -> None:
    """The help of `swell pool start` said that its workers never exit."""
    helps = [next(flag.help for flag in flags if flag.field == "idle_s") for flags in (POOL_FLAGS, FLAGS)]
    assert helps == [
        "Workers exit after N seconds without a task.  [default: 600]",
        "Exit after N seconds without a task.  [default: never]",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_a_pool_is_started_with_are_the_same_for_the_process_in_the_background(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in /, so `--token-file pool.token` was looked for there."""
    monkeypatch.chdir(tmp_path)
    flags = (*POOL_FLAGS, *find_kind(kind).flags)
    paths = {flag.field: "some/file" for flag in flags if flag.kind is FlagKind.PATH}
    assert "token_file" in paths
    folder = PoolFolder(tmp_path / "pool")
    folder.prepare()
    keep_command(folder, PoolCommand(kind, {**paths, "server": "https://there", "nodelist": "n1"}, "my-state"))
    monkeypatch.chdir("/")
    absolute = dict.fromkeys(paths, f"{tmp_path}/some/file")
    kept = PoolCommand(kind, {**absolute, "server": "https://there", "nodelist": "n1"}, f"{tmp_path}/my-state")
    assert read_command(folder) == kept
