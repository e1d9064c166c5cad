"""Refusals are written down with their origin; a flood of them is counted, not written."""

from __future__ import annotations

import logging

from api.service import Service
from swell.api.refusals import LINES_PER_WINDOW, WINDOW_S, Refusals


def test_a_flood_leaves_a_few_lines_and_a_number(caplog):
    now = [0.0]
    refusals = Refusals(logging.getLogger("test"), monotonic=lambda: now[0])
    for number in range(1000):
        refusals.note("10.0.0.1", f"try {number}")
    now[0] += WINDOW_S + 1
    refusals.note("10.0.0.1", "one more")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == LINES_PER_WINDOW + 2
    assert said[0] == "refused 10.0.0.1: try 0"
    assert said[-2:] == [f"and {1000 - LINES_PER_WINDOW} more refusals", "refused 10.0.0.1: one more"]


def test_a_refused_request_is_logged_with_its_origin_and_no_line_of_its_own(tmp_path, caplog):
    service = Service(tmp_path)
    try:
        service.ask("GET", "/jobs/a%0AINFO%20all%20is%20well", token="forged")
    finally:
        service.close()
    [said] = [record.getMessage() for record in caplog.records if record.name == "swell.api.security"]
    assert said.startswith("refused 127.0.0.1:")
    assert r"GET '/api/v1/jobs/a\nINFO all is well': the token is not this server's" in said
    assert "\n" not in said
