"""Tasks of an AIchor manifest are told the commit in its folder, whoever made that repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from moving.shell import Shell
from swell.cli.commit import CHARACTERS_MAX, find_commit

MANIFEST = (
    "apiVersion: 0.2.3\nkind: AIchorManifest\nname: exp\nspec:\n  operator: jobset\n  image: i\n  command: a\n"
    "  types:\n    worker:\n      resources: {cpus: 1}\n"
)
AUTHOR = {f"GIT_{role}_{field}": "ann@x" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    """With none of the configuration of whoever runs the tests."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **AUTHOR}
    done = subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.strip()


def repository(folder: Path, message: str = "Try it\n\nAgain") -> str:
    """Makes one with one commit; its id."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def test_the_commit_of_its_folder_is_what_its_tasks_are_told(tmp_path: Path) -> None:
    sha = repository(tmp_path / "code")
    file = tmp_path / "code" / "manifests" / "exp.yaml"
    file.parent.mkdir()
    file.write_text(MANIFEST)
    shell = Shell(tmp_path / "server")
    try:
        done = shell.type("swell", "submit", str(file))
        assert done.code == 0, done
        job = shell.service.store.job(int(done.stdout))
        told = dict(job.spec.roles[0].env)
    finally:
        shell.close()
    assert (told["VCS_TYPE"], told["VCS_SHA"], told["VCS_COMMIT_MESSAGE"]) == ("git", sha, "Try it\n\nAgain")


def test_a_folder_that_is_no_repository_or_has_no_commit_has_none(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "--quiet")
    for name in ("plain", "new", "missing"):
        assert find_commit([str(tmp_path / name / "exp.yaml")]) is None
    assert find_commit([]) is None


def test_manifests_of_two_commits_have_none_together(tmp_path: Path) -> None:
    first, _ = repository(tmp_path / "a", "one"), repository(tmp_path / "b", "two")
    inside = [str(tmp_path / "a" / "x.yaml"), str(tmp_path / "a" / "y.yaml")]
    assert find_commit(inside) == {"sha": first, "message": "one"}
    assert find_commit([*inside, str(tmp_path / "b" / "x.yaml")]) is None


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    repository(tmp_path / "code", "é" * 3 * CHARACTERS_MAX)
    found = find_commit([str(tmp_path / "code" / "exp.yaml")])
    assert found is not None
    assert found["message"] == "é" * CHARACTERS_MAX


def test_a_commit_that_is_larger_than_any_message_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    repository(folder)
    (folder / "message").write_text("x" * 200_000)
    git(folder, "commit", "--quiet", "--allow-empty", "--file", "message")
    assert find_commit([str(folder / "exp.yaml")]) is None


PROGRAMS = ("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "gpg.program", "diff.external")


def test_nothing_that_a_repository_names_is_run(tmp_path: Path) -> None:
    folder, ran = tmp_path / "code", tmp_path / "ran"
    sha = repository(folder)
    script = tmp_path / "evil"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\n')
    script.chmod(0o755)
    for name in PROGRAMS:
        git(folder, "config", name, str(script))
    git(folder, "config", "log.showSignature", "true")
    git(folder, "config", "core.hooksPath", str(tmp_path))
    git(folder, "config", "alias.cat-file", f"!{script}")
    assert find_commit([str(folder / "exp.yaml")]) == {"sha": sha, "message": "Try it\n\nAgain"}
    assert not ran.exists()


@pytest.mark.parametrize("url", ["ext::{script}", "ssh://there/code", "file://{script}"])
def test_a_partial_clone_whose_commit_is_missing_fetches_nothing(tmp_path: Path, url: str) -> None:
    """git fetches a missing object over whatever transport the configuration of the repository allows."""
    folder, ran = tmp_path / "code", tmp_path / "ran"
    sha = repository(folder)
    script = tmp_path / "evil"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\n')
    script.chmod(0o755)
    (folder / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
    settings = {
        "remote.origin.url": url.format(script=script),
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "remote.origin.uploadpack": str(script),
        "extensions.partialClone": "origin",
        "core.repositoryformatversion": "1",
        "core.sshCommand": str(script),
        "protocol.allow": "always",
    }
    for name, value in settings.items():
        git(folder, "config", name, value)
    found = subprocess.run(["git", "cat-file", "-p", sha], cwd=folder, capture_output=True, check=False, timeout=30)
    assert found.returncode != 0
    assert ran.exists(), "the repository is as hostile as the test says"
    ran.unlink()
    assert find_commit([str(folder / "exp.yaml")]) is None
    assert not ran.exists()
