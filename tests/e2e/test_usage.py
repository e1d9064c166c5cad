"""What was used is known to the second, through crashes, deletions and restarts."""

from __future__ import annotations

import getpass
from datetime import datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server import Gate, Server

pytestmark = pytest.mark.slow


def usage(server: Server, *options: str) -> dict[str, Any]:
    done = server.swell("usage", "-o", "json", *options)
    assert done.code == 0, done
    found: dict[str, Any] = done.json
    return found


def scraped(server: Server) -> dict[str, float]:
    """What has no label but a state, by name and state."""
    text = server.client().connection.raw("GET", "/metrics").data.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {f"{one.name} {one.labels.get('state', '')}".strip(): one.value for one in samples if len(one.labels) <= 1}


def seconds_held(server: Server, job: int) -> float:
    [attempt] = server.client().show(job)["attempts"]
    return (datetime.fromisoformat(attempt["ended_at"]) - datetime.fromisoformat(attempt["created_at"])).total_seconds()


def test_a_job_that_outlives_its_killed_server_is_counted_once_and_for_ever(own_server: Server, gate: Gate) -> None:
    job = own_server.start("--gpus", "2", "--cpus", "4", "--", "sh", "-c", f"read line < {gate}")
    own_server.until(job, "running")
    own_server.kill()
    own_server.up()
    gate.open()
    own_server.until(job, "succeeded")
    held_s = seconds_held(own_server, job)
    own_server.kill()
    own_server.up()
    found = usage(own_server, "--days", "2")
    [mine] = found["usage"]
    assert (mine["user"], mine["attempts"], mine["lost_gpu_hours"]) == (getpass.getuser(), 1, 0.0)
    assert mine["gpu_hours"] * 3600 == pytest.approx(2 * held_s, abs=0.01)
    assert mine["cpu_hours"] * 3600 == pytest.approx(4 * held_s, abs=0.01)
    assert own_server.swell("delete", str(job)).code == 0
    assert usage(own_server, "--days", "2") == found
    table = own_server.swell("usage", "--by", "user,day", "-o", "wide").stdout.splitlines()
    assert table[0].split() == ["USER", "DAY", "GPU-HOURS", "CPU-HOURS", "LOST", "GPU-HOURS", "ATTEMPTS", "SHARE"]
    assert table[-2].startswith("all users ")
    assert table[-2].split()[-2:] == ["1", "100%"]
    assert table[-1] == f"(from {usage(own_server)['since']} to {found['until']}, UTC)"


def test_totals_of_ended_jobs_and_of_use_go_on_after_the_server_is_killed(own_server: Server) -> None:
    for command in ("true", "false"):
        own_server.swell("run", "--gpus", "1", "--", command)
    before = scraped(own_server)
    own_server.kill()
    own_server.up()
    after = scraped(own_server)
    kept = ["swell_jobs_ended_total succeeded", "swell_jobs_ended_total failed", "swell_usage_gpu_seconds_total"]
    assert [after[name] for name in kept] == [before[name] for name in kept] == [1.0, 1.0, before[kept[2]]]
    assert after["swell_usage_gpu_seconds_total"] > 0.0
    assert after["swell_wait_seconds_count"] == 0.0  # begins anew, as Prometheus expects
