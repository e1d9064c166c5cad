"""The folder that goes on a job's PYTHONPATH holds our two packages and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from swell.machine.library import PACKAGES, library_folder

SDK = Path(__file__).parents[2] / "sdk/src"
ASK = "from swell.machine.library import library_folder; print(library_folder())"


def ask(**variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_in_a_checkout_it_is_the_source_itself():
    assert library_folder() == str(SDK)


def test_for_users_it_is_a_copy_that_they_may_read_whatever_the_umask_of_the_server(tmp_path: Path):
    """A box installed below /root, or with umask 077: no container started, and a door's job found no library."""
    before = os.umask(0o077)
    try:
        folder = library_folder(tmp_path / "library")
    finally:
        os.umask(before)
    assert folder is not None
    assert Path(folder).parent == tmp_path / "library"
    found = [Path(folder), *Path(folder).rglob("*")]
    assert {(path.is_dir(), path.stat().st_mode & 0o777) for path in found} == {(True, 0o755), (False, 0o644)}
    originals = {str(file.relative_to(SDK)) for name in PACKAGES for file in (SDK / name).rglob("*.py")}
    assert {str(path.relative_to(folder)) for path in found if path.is_file()} == originals


def test_among_other_packages_it_is_a_copy_of_both_made_once(tmp_path: Path):
    site, cache = tmp_path / "site", tmp_path / "cache"
    for name in ("kubernetesdlprofile", "swell_sdk", "something_else"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(f"name = {name!r}\n")
    found = {ask(PYTHONPATH=str(site), XDG_CACHE_HOME=str(cache)) for _ in range(2)}
    [folder] = found
    assert sorted(path.name for path in Path(folder).iterdir()) == ["kubernetesdlprofile", "swell_sdk"]
    assert [path.name for path in (cache / "swell").iterdir()] == [Path(folder).name]
    (site / "swell_sdk/__init__.py").write_text("name = 'another version'\n")
    assert ask(PYTHONPATH=str(site), XDG_CACHE_HOME=str(cache)) != folder
