"""Can another user of a worker's machine get the token that a pool's worker is started with?

They may make folders, files and links of any name where workers make their folders, before a worker does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pools.contract import TOKEN, order
from swell.machine.worker_folder import GIVEN_TOKEN
from swell.pools.backend import WorkerOrder
from swell.pools.slurm.render import render_script
from swell.pools.worker_command import words_with_token_variable, worker_folder

NOBODY = 65534
SHELLS = [shell for shell in ("/bin/dash", "/bin/bash") if Path(shell).exists()]
WANTED = order()
Start = Callable[[Path], subprocess.CompletedProcess[str]]


def by_slurm(shell: str, prefix: Path) -> tuple[list[str], str]:
    return [shell, "-s"], render_script(_order(prefix), Path("/logs"))


def by_container(shell: str, prefix: Path) -> tuple[list[str], str]:
    return [shell, *words_with_token_variable(_order(prefix))[1:]], ""


def _order(prefix: Path) -> WorkerOrder:
    return replace(WANTED, executable=str(prefix / "swell"), folder_prefix=str(prefix))


@pytest.fixture(params=[(shell, way) for shell in SHELLS for way in (by_slurm, by_container)])
def start(request: pytest.FixtureRequest) -> Start:
    """In each shell, by each way that a pool has: starts a worker that tells its token file's text."""
    shell, way = request.param

    def started(prefix: Path) -> subprocess.CompletedProcess[str]:
        program = prefix / "swell"
        program.write_text(
            '#!/bin/sh\nwhile [ "$1" != --token-file ]; do shift; done; cat "$2"; env | grep -c ^SWELL_W\n'
        )
        program.chmod(0o755)
        words, script = way(shell, prefix)
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SWELL_WORKER_TOKEN": TOKEN}
        return subprocess.run(words, input=script, capture_output=True, text=True, env=env, check=False)

    return started


def folder_in(prefix: Path) -> Path:
    return worker_folder(_order(prefix))


def test_the_token_is_in_a_folder_that_only_its_user_enters(tmp_path: Path, start: Start) -> None:
    folder = folder_in(tmp_path)
    done = start(tmp_path)
    assert (done.stdout, done.stderr) == (f"{TOKEN}0\n", "")
    assert [path.stat().st_mode & 0o7777 for path in (folder, folder / GIVEN_TOKEN)] == [0o700, 0o600]


def test_a_worker_that_is_started_again_takes_its_own_folder(tmp_path: Path, start: Start) -> None:
    start(tmp_path)
    assert start(tmp_path).stdout == f"{TOKEN}0\n"


def test_a_folder_below_one_that_gives_its_group_on_is_private(tmp_path: Path, start: Start) -> None:
    tmp_path.chmod(0o2755)
    assert start(tmp_path).stdout == f"{TOKEN}0\n"


def a_folder_of_another_user(place: Path) -> None:
    place.mkdir(mode=0o777)
    os.chown(place, NOBODY, NOBODY)


def a_link_to_a_folder_of_another_user(place: Path) -> None:
    target = place.with_name("theirs")
    a_folder_of_another_user(target)
    place.symlink_to(target)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)


def a_link_to_a_private_folder_of_ours(place: Path) -> None:
    target = place.with_name("ours")
    target.mkdir(mode=0o700)
    place.symlink_to(target)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)


def a_link_to_nothing(place: Path) -> None:
    place.symlink_to(place.with_name("gone"))


def a_file(place: Path) -> None:
    place.write_text("")


def a_folder_of_ours_that_others_may_write(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def a_folder_of_ours_that_others_may_read(place: Path) -> None:
    place.mkdir()
    place.chmod(0o755)


PREPARED = [
    a_folder_of_another_user,
    a_link_to_a_folder_of_another_user,
    a_link_to_a_private_folder_of_ours,
    a_link_to_nothing,
    a_file,
    a_folder_of_ours_that_others_may_write,
    a_folder_of_ours_that_others_may_read,
]


@pytest.mark.parametrize("prepare", PREPARED)
def test_what_somebody_else_has_prepared_is_refused_and_never_sees_the_token(
    tmp_path: Path, start: Start, prepare: Callable[[Path], None]
) -> None:
    """Hole: the token was written to a path in /tmp that anybody could prepare as a file or a link."""
    folder = folder_in(tmp_path)
    prepare(folder)
    done = start(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "somebody else may have prepared it; remove it, or choose another --work-dir-prefix" in done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if TOKEN in path.read_text()] == []


def test_a_link_in_the_place_of_the_token_is_removed_and_not_followed(tmp_path: Path, start: Start) -> None:
    folder, target = folder_in(tmp_path), tmp_path / "target"
    folder.mkdir(mode=0o700)
    target.write_text("before")
    (folder / GIVEN_TOKEN).symlink_to(target)
    assert (start(tmp_path).stdout, target.read_text()) == (f"{TOKEN}0\n", "before")
