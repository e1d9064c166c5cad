"""The folder that goes on a job's PYTHONPATH holds our two packages and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from swell.foreign.library import library_folder

SDK = Path(__file__).parents[2] / "sdk/src"
ASK = "from swell.foreign.library import library_folder; print(library_folder())"


def ask(**variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_in_a_checkout_it_is_the_source_itself():
    assert library_folder() == str(SDK)


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
