"""Which programs a test cluster takes from PATH, and what it would have to build."""

from __future__ import annotations

from pathlib import Path

import pytest

from .binaries import missing, program
from .recipes import recipe_of


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH; nothing is built."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_a_program_on_path_is_taken_before_one_is_built(on_path: Path) -> None:
    put(on_path, "etcd", "kube-apiserver")
    assert [program("etcd"), program("kube-apiserver")] == [on_path / "etcd", on_path / "kube-apiserver"]


def test_what_is_on_path_need_not_be_built(on_path: Path) -> None:
    put(on_path, "etcd", *dict(recipe_of("kubelet").programs))
    assert missing(["etcd", "kubelet", "helm"]) == (recipe_of("helm"),)


def test_a_recipe_of_which_a_program_is_not_on_path_is_built(on_path: Path) -> None:
    """As envtest ships them: without the controller manager."""
    put(on_path, "etcd", "kube-apiserver", "kubectl")
    assert missing(["etcd", "kube-apiserver", "kube-controller-manager"]) == (recipe_of("kubelet"),)


def test_a_kubectl_by_itself_is_not_taken(on_path: Path) -> None:
    put(on_path, "kubectl")
    assert missing(["kubectl"]) == (recipe_of("kubectl"),)


def test_an_operator_on_path_is_built_all_the_same_for_the_files_of_its_module(on_path: Path) -> None:
    put(on_path, "jobset")
    assert missing(["jobset"]) == (recipe_of("jobset"),)
