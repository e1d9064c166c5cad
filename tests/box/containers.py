"""Containers of a box server's users, for tests: the image, what runs, what is left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from box.machine import Machine, Person, refuse_what_is_missing, wait_for
from e2e.containers import OPTIONS, RUNTIME, archive
from e2e.disks import need
from server import Gate, Result

IMAGE = "localhost/swell-test:1"
COMMAND = f"{RUNTIME} --log-level error"  # podman warns of sandboxes whose root folder is not shared
WAITS = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.1; done"


def made_box() -> Iterator[Machine]:
    refuse_what_is_missing()
    need("newuidmap", "uidmap")
    with Machine(container_command=COMMAND, container_options=OPTIONS) as machine:
        for person in machine.people:
            assert podman(machine, person, "import", "-", IMAGE, stdin=archive()).code == 0
        yield machine
        assert [containers(machine, person) for person in machine.people] == [[], [], []]


def podman(machine: Machine, person: Person, *words: str, stdin: bytes = b"") -> Result:
    """By hand, where the server's worker has them run."""
    folder = machine.state.runtime_folder(person.uid)
    folder.parent.mkdir(exist_ok=True)
    folder.parent.chmod(0o711)
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, person.uid, person.gid)
    return person.run(*COMMAND.split(), *words, env={"XDG_RUNTIME_DIR": str(folder)}, stdin=stdin)


def containers(machine: Machine, person: Person) -> list[str]:
    done = podman(machine, person, "ps", "--all", "--format", "{{.Names}} {{.Status}}")
    assert done.code == 0, done
    return [line for line in done.stdout.splitlines() if line]


def inspect(machine: Machine, person: Person, job: int) -> dict[str, Any]:
    done = podman(machine, person, "container", "inspect", str(machine.client().place(job)["container"]))
    assert done.code == 0, done
    [found] = json.loads(done.stdout)
    return dict(found)


def shell(script: str) -> tuple[str, ...]:
    return ("--image", IMAGE, "--", "sh", "-c", script)


def at(gate: Gate) -> tuple[str, ...]:
    return ("--mount", f"{gate.path.parent}:{gate.path.parent}")


def processes_of(machine: Machine, person: Person) -> list[int]:
    """But for what podman leaves running for itself when it is used by hand."""
    return [pid for pid in machine.processes_of(person) if not _is_pause_by_hand(pid)]


def _is_pause_by_hand(pid: int) -> bool:
    try:
        words, groups = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "cgroup"))
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return False
    return words == b"catatonit\0-P\0" and b"/swell-" not in groups


def nothing_is_left(machine: Machine, person: Person) -> None:
    wait_for(lambda: processes_of(machine, person) == [], f"the end of everything of {person.name}")
    assert containers(machine, person) == []


def made_gate(machine: Machine) -> Iterator[Gate]:
    made = Gate(machine.root / f"gate-{os.urandom(4).hex()}")
    made.path.chmod(0o644)
    yield made
    made.close()
