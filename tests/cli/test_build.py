"""`swell submit --build`: the command that builds the image of a builder section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.cli.build import build_images, build_words
from swell.errors import Rejected

#: as a dry run tells it
BUILD: dict[str, Any] = {
    "image": "count:1",
    "dockerfile": "Dockerfile",
    "context": ".",
    "arguments": {},
    "target": None,
    "is_skipped": False,
}


def test_a_builder_section_is_a_command_of_the_program_that_is_there() -> None:
    given = {**BUILD, "dockerfile": "a/Dockerfile", "context": "src", "target": "run", "arguments": {"A": "b c"}}
    options = ["--tag=count:1", "--file=a/Dockerfile", "--build-arg=A=b c", "--target=run"]
    assert build_words("podman", given) == ["podman", "build", *options, "./src"]
    assert build_words("docker", BUILD) == ["docker", "build", "--tag=count:1", "--file=Dockerfile", "."]


@pytest.mark.parametrize("program", ["podman", "buildah", "docker"])
@pytest.mark.parametrize(
    ("context", "told"),
    [
        ("-x", "./-x"),
        ("-", "./-"),
        ("--output=/etc", "./--output=/etc"),
        ("https://evil/x", "./https://evil/x"),
        ("github.com/evil/x", "./github.com/evil/x"),
        ("git@evil:x", "./git@evil:x"),
        ("", "./"),
        ("/src", "/src"),
        ("../src", "../src"),
        (".", "."),
    ],
)
def test_the_context_can_only_be_a_folder(program: str, context: str, told: str) -> None:
    """Hole: docker took a folder of that name for an option, and all three take some for an address to fetch from."""
    assert build_words(program, {**BUILD, "context": context})[-1] == told


def test_without_a_program_that_builds_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Rejected, match="--build needs podman, buildah or docker, and none of them is on this machine"):
        build_images([{"build": BUILD}])


def test_an_image_that_several_manifests_share_is_built_once_and_one_that_is_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    build_images([{"build": BUILD}, {"build": {**BUILD, "is_skipped": True}}, {"build": dict(BUILD)}])
    assert (tmp_path / "calls").read_text() == "build --tag=count:1 --file=Dockerfile .\n"


def test_a_folder_that_is_not_here_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Rejected, match=r"builder\.context 'nowhere' is no folder here"):
        build_images([{"build": {**BUILD, "context": "nowhere"}}])
