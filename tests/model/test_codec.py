"""Every value is written as it always was, and what an older version wrote is read.

`documents/` has what the translations by hand made of `values.py`, before one codec took their place: nobody may change
these files. A new field has a default, and is written beside what was always written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model import values
from swell.model.attempt import Asked, Resume, Stopping
from swell.model.codec import from_document, to_document
from swell.model.job import JobSpec
from swell.model.launch import (
    Launch,
    node_document,
    parse_node,
    parse_run,
    parse_task,
    run_document,
    task_document,
)
from swell.model.plan import Slot
from swell.model.training import TrainingRecord

Write = Callable[[Any], Any]


def as_sent(document: Any) -> Any:
    return json.loads(json.dumps(document))


def of_before(found: Any, known: Any) -> Any:
    """Without the members of later fields."""
    if isinstance(found, dict) and isinstance(known, dict):
        return {name: of_before(value, known[name]) for name, value in found.items() if name in known}
    if isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        return [of_before(*pair) for pair in zip(found, known, strict=True)]
    return found


def reads(kind: Any) -> Write:
    return lambda document: from_document(kind, document)


def slots_document(slots: tuple[Slot, ...]) -> list[Any]:
    return [to_document(slot) for slot in slots]


KINDS: dict[str, tuple[Any, Write, Write]] = {
    "spec": (values.SPEC, JobSpec.to_document, JobSpec.from_document),
    "array": (values.PLAIN, JobSpec.to_document, JobSpec.from_document),
    "launch": (values.LAUNCH, Launch.to_document, Launch.from_document),
    "short-launch": (values.SHORT_LAUNCH, Launch.to_document, Launch.from_document),
    "training": (values.TRAINING, TrainingRecord.to_document, TrainingRecord.from_document),
    "asked": (values.ASKED, to_document, reads(Asked)),
    "stopping": (values.STOPPING, to_document, reads(Stopping)),
    "resume": (values.RESUME, to_document, reads(Resume)),
    "slots": (values.SLOTS, slots_document, reads(tuple[Slot, ...])),
    "task": (values.TASK, task_document, lambda document: parse_task(document, "a")),
    "run": (values.RUN, run_document, lambda document: parse_run(document, "a")),
    "node": (values.NODE, node_document, parse_node),
}


def golden(name: str) -> Any:
    return json.loads((Path(__file__).parent / f"documents/{name}.json").read_text())


@pytest.mark.parametrize("name", KINDS)
def test_a_value_is_written_as_it_always_was(name: str) -> None:
    value, write, _ = KINDS[name]
    found = of_before(as_sent(write(value)), golden(name))
    assert found == golden(name)
    assert json.dumps(found) == json.dumps(golden(name)), "in the same order"


@pytest.mark.parametrize("name", KINDS)
def test_a_document_is_read_back_as_the_value_that_it_was_made_from(name: str) -> None:
    value, _, read = KINDS[name]
    assert read(golden(name)) == value


def test_fields_that_an_older_version_did_not_write_have_their_defaults() -> None:
    """As the first version that was released to anybody wrote them."""
    role = {"name": "worker", "command": ["./case.sh"], "cpus_milli": 1000, "memory_mib": 0, "gpus": 0, "count": 1}
    first = ("name", "dimension", "width_min", "width_max", "array", "priority", "time_limit_s", "grace_s")
    later = golden("array")
    document = {name: later[name] for name in (*first, "workdir", "env", "umask")} | {"roles": [role]}
    assert JobSpec.from_document(document) == values.PLAIN


def test_a_launch_of_a_server_of_before_is_read() -> None:
    document = golden("short-launch")
    document["lanes"] = [{"number": 0, "devices": [], "role": 0}]
    document["roles"] = [{"command": ["true"], "env": {}}]
    assert Launch.from_document(document) == values.SHORT_LAUNCH
    assert Launch.from_document({**document, "is_array": True}).ranks == "alone"


def test_a_field_that_nobody_knows_is_refused_and_a_later_worker_may_say_more() -> None:
    with pytest.raises(TypeError, match="colour"):
        JobSpec.from_document({**golden("array"), "colour": "blue"})
    assert parse_run({**golden("run"), "colour": "blue", "suspended": "Job team/a"}, "a") == values.RUN
    assert parse_node({**golden("node"), "colour": "blue", "is_reachable": False, "is_cordoned": True}) == values.NODE


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"environment": "../../etc/passwd"}, "no SHA-256"),
        ({"rendezvous": {"port": 70000, "addresses": [], "node_of_rank": []}}, "70000 is no port"),
        ({"rendezvous": {"port": 1, "addresses": ["a b"], "node_of_rank": []}}, "'a b' is no address"),
        ({"ranks": "few"}, "'few' is not a valid Ranks"),
    ],
)
def test_what_a_server_sends_is_checked(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Launch.from_document({**golden("launch"), **changed})
