"""One user's logs and checkpoints take no more of everybody's disk than they may."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from box.machine import Machine, Person, wait_for

pytestmark = pytest.mark.slow

WRITE = 'head -c 20971520 /dev/urandom > "$SWELL_CHECKPOINTS/model"; while [ ! -e {gate} ]; do sleep 0.1; done'


def on_disk(person: Person) -> dict[str, Any]:
    [found] = person.swell("usage", "-o", "json").json["disk"]
    return dict(found)


def test_who_has_too_much_on_the_disk_deletes_something_before_anything_more_of_theirs_begins() -> None:
    with Machine(limits={"default": {"disk_mib": 10}}) as box:
        anna, ben, _ = box.people
        gate = Path(box.root) / "gate"
        large = anna.start("--gpus", "4", "--", "sh", "-c", WRITE.format(gate=gate))
        waits = anna.start("--gpus", "4", "--", "true")
        wait_for(lambda: on_disk(anna)["disk_mib"] >= 20, "the count of what job 1 wrote")
        wait_for(lambda: bool(on_disk(anna)["largest"]), "the end of that count")
        assert (on_disk(anna)["disk_mib_max"], on_disk(anna)["largest"][0]["job"]) == (10, large)
        assert re.search(rf"{anna.name} has 20\.\d of at most 10 MiB .*: job {large} 20\.", anna.swell("usage").stdout)

        refused = anna.swell("run", "-d", "--", "true")
        assert refused.code != 0
        assert f"'{anna.name}' has 20." in refused.stderr
        assert f"(swell delete {large})" in refused.stderr
        assert anna.job(large)["state"] == "running", "what runs goes on"
        gate.touch()
        box.until(large, "succeeded")
        held = box.until_true(waits, lambda job: job["reason"]["code"] == "UserLimit")["reason"]
        assert (held["evidence"]["disk_mib_max"], held["evidence"]["largest"][0]) == (10, large)
        assert ben.swell("run", "--", "true").code == 0, "nobody else is kept"

        assert anna.swell("delete", str(large)).code == 0
        box.until(waits, "succeeded")
        assert anna.swell("run", "--", "true").code == 0


def test_who_is_far_above_the_limit_loses_their_largest_job_and_nothing_else() -> None:
    """It could write until the disk was full for everybody."""
    with Machine(limits={"default": {"disk_mib": 10}}) as box:
        anna, ben, _ = box.people
        gate = Path(box.root) / "gate"
        others = [person.start("--", "sleep", "600") for person in (anna, ben)]
        large = anna.start("--", "sh", "-c", WRITE.format(gate=gate).replace("20971520", "41943040"))
        wait_for(lambda: anna.job(large)["state"] == "failed", "the end of it, after two passes over the disk", 90.0)
        reason = anna.job(large)["reason"]
        evidence = reason["evidence"]
        assert (reason["code"], evidence["user"], evidence["disk_mib_max"]) == ("DiskLimit", anna.name, 10)
        assert evidence["job_mib"] > 26
        assert [box.client().job(job).document["state"] for job in others] == ["running", "running"]


def test_a_box_counts_where_its_operator_says_nothing_and_leaves_each_user_a_quarter_of_the_disk(box: Machine) -> None:
    anna, *_ = box.people
    assert anna.swell("run", "--", "true").code == 0
    size = on_disk(anna)["disk_mib_max"]
    blocks, each = map(int, anna.run("stat", "-f", "-c", "%b %S", str(box.root)).stdout.split())
    assert size == blocks * each // 4 // 1024**2
