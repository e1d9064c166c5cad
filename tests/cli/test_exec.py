"""What does `swell exec` run, of what a server says? And without a command: is there a shell in the container?

A program on PATH plays kubectl.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.cli.exec import is_pod, refuse_other_program, refuse_without_shell
from swell.errors import Conflict, Denied

ENTER = ["kubectl", "--namespace", "ml", "exec", "train-0", "--", "/bin/sh", "-c", ":"]
NO_SHELL = 'exec failed: exec: "/bin/sh": stat /bin/sh: no such file or directory'


def play_kubectl(folder: Path, code: int, said: str) -> dict[str, str]:
    """The environment in which it is found; what it was asked is in the file `asked`."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\necho \"$*\" > {folder}/asked\necho '{said}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_a_container_with_a_shell_is_entered_and_the_question_takes_no_input(tmp_path: Path) -> None:
    refuse_without_shell("train", ENTER, play_kubectl(tmp_path, 0, ""))
    assert (tmp_path / "asked").read_text() == "--namespace ml exec train-0 -- /bin/sh -c :\n"


def test_one_without_a_shell_is_refused_in_the_runtimes_words_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Conflict) as refused:
        refuse_without_shell("train", ENTER, play_kubectl(tmp_path, 126, NO_SHELL))
    assert str(refused.value) == (
        f"/bin/sh cannot be run in the container of job train: {NO_SHELL}; "
        "if its image has no shell, name a program in the image: swell exec train -- PROGRAM"
    )


def test_without_kubectl_nothing_is_said_of_shells(tmp_path: Path) -> None:
    refuse_without_shell("train", ENTER, {"PATH": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


POD: dict[str, Any] = {"pid": None, "container": "train-0", "runtime": ["kubectl", "--namespace", "ml"]}


def test_a_pod_is_what_a_server_that_works_on_a_cluster_names() -> None:
    assert is_pod(POD)


@pytest.mark.parametrize(
    "changed",
    [
        {"runtime": ["kubectl", "--kubeconfig=evil"]},
        {"runtime": ["kubectl", "--kubeconfig", "evil"]},
        {"runtime": ["kubectl", "--namespace", "--kubeconfig=evil"]},
        {"runtime": ["kubectl", "--namespace", "ml", "--kubeconfig=evil"]},
        {"runtime": ["/tmp/kubectl", "--namespace", "ml"]},
        {"container": "--kubeconfig=evil"},
        {"container": None},
        {"pid": 4711},
    ],
)
def test_nothing_else_reaches_kubectl_and_none_of_it_is_run_as_a_container_program(changed: dict[str, Any]) -> None:
    place = {**POD, **changed}
    assert not is_pod(place)
    with pytest.raises(Denied, match="swell exec runs only podman and docker"):
        refuse_other_program(place)


@pytest.mark.parametrize("program", ["podman", "docker", "/usr/bin/podman"])
def test_podman_and_docker_enter_containers(program: str) -> None:
    refuse_other_program({"runtime": [program, "--log-level", "error"], "container": "swell-0a1b2c3d-1.1-0"})


@pytest.mark.parametrize(
    ("runtime", "container"),
    [
        ([], "a"),
        (["sh", "-c", "id"], "a"),
        (["./podman"], "a"),
        (["/tmp/evil/podman2"], "a"),
        (["podman"], "--env=LD_PRELOAD=/tmp/evil"),
        (["podman"], ""),
    ],
)
def test_any_other_program_or_a_container_that_is_an_option_is_refused(runtime: list[str], container: str) -> None:
    with pytest.raises(Denied, match="swell exec runs only podman and docker"):
        refuse_other_program({"runtime": runtime, "container": container})
