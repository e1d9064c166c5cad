"""What would keep a job from starting here is said when it is submitted, not hours later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.client.foresee import missing, refuse_one_word
from swell.errors import Rejected

PATH = "/usr/bin:/bin"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"command": ["true"]}, []),
        ({"command": ["true"], "workdir": "/nope"}, ["folder /nope does not exist"]),
        ({"command": ["true"], "workdir": "gone"}, ["folder {here}/gone does not exist"]),
        ({"command": ["no-such-program", "x"]}, ["there is no program 'no-such-program' on PATH"]),
        ({"command": ["no-such-program"], "launcher": "torchrun"}, []),  # a script, which python finds its own way
        ({"command": ["true"], "env": {"PATH": "/nope"}}, ["there is no program 'true' on PATH"]),
        ({"command": ["./train.sh"]}, ["there is no program {here}/train.sh"]),
        ({"command": ["./plain"]}, ["{here}/plain cannot be run: it is not an executable file"]),
        ({"command": ["./tool"]}, []),
        (
            {"command": ["true"], "tensorboard": "runs", "env": {"PATH": "/bin"}},
            ["--tensorboard needs the program 'tensorboard', which is not on PATH (pip install tensorboard)"],
        ),
        ({"command": ["true"], "notify": "nosuchprog --now"}, ["--notify: there is no program 'nosuchprog' on PATH"]),
        ({"command": ["true"], "notify": ["nosuchprog"]}, ["--notify: there is no program 'nosuchprog' on PATH"]),
        ({"command": ["true"], "notify": "true it"}, []),
        ({"command": ["true"], "notify": "https://example.org/x"}, []),
        ({"command": ["true"], "notify": "mailto:ann@example.org"}, []),
        ({"command": ["anything"], "image": "x", "workdir": "/inside"}, []),
        (
            {"command": ["x"], "image": "x", "mounts": ["/nope:/data:ro", "/tmp:/tmp", "odd"]},
            ["mount source /nope does not exist"],
        ),
    ],
)
def test_what_is_not_there_is_found(tmp_path: Path, spec: dict[str, Any], expected: list[str]):
    """Incident: `--workdir /nope`, a missing mount and a misspelt program were refused hours later."""
    (tmp_path / "plain").write_text("")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    assert list(missing(spec, tmp_path, {"PATH": PATH})) == [text.format(here=tmp_path) for text in expected]


def test_a_whole_command_in_quotes_is_refused_with_what_to_type():
    """Incident: `swell run 'echo a b'` looked for a program with that name."""
    with pytest.raises(Rejected) as refused:
        refuse_one_word(["echo a b"], PATH)
    assert str(refused.value) == (
        "there is no program 'echo a b': the quotes make it one word; leave them out (swell run -- echo a b), "
        "or use a shell: swell run -- sh -c 'echo a b'"
    )


@pytest.mark.parametrize("command", [["echo"], ["echo", "a b"], ["no such program"], [" "]])
def test_other_commands_are_left_alone(command: list[str]):
    refuse_one_word(command, PATH)
