"""`swell exec` without a command: is there a shell in the container? A program on PATH plays kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.cli.exec import refuse_without_shell
from swell.errors import Conflict

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
        "if its image has no shell, name a program that it has: swell exec train -- PROGRAM"
    )


def test_without_kubectl_nothing_is_said_of_shells(tmp_path: Path) -> None:
    refuse_without_shell("train", ENTER, {"PATH": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
