"""Every change that comes through a door is an event that says who asked for it, and from where."""

from __future__ import annotations

from typing import Any

import pytest

from api.service import Service

from .foreign import Foreign, of_job, of_user, running

RECORD = {"job_name": "theirs", "gpu_req": 1, "gpu_lim": 4, "gpu_assigned": 2}


@pytest.fixture
def genai(service: Service) -> Foreign:
    return of_user(service, "genai")


def address(client: Foreign) -> str:
    """As the record names it: by its id, which is no secret."""
    return f"address {client.address.rpartition('/')[2].split('.')[1]} of door genai"


def said(service: Service, after: int) -> list[tuple[Any, ...]]:
    """Of events that somebody asked for: kind, job, who, from where, what."""
    events = service.ask("GET", f"/events?after={after}").json["events"]
    fields = ("kind", "job", "actor", "origin", "detail")
    return [tuple(event[field] for field in fields) for event in events if event["origin"]]


def test_what_is_done_to_a_record_is_on_record(service, genai):
    before = service.store.last_event_id()
    theirs = {"job_name": "theirs"}
    for method, path, body in (
        ("POST", "/add_job", RECORD),
        ("PUT", "/update_job", {**theirs, "team": "nlp"}),
        ("PUT", "/increment_restarts", theirs),
        ("PUT", "/update_job_status", {**theirs, "status": "completed"}),
        ("PUT", "/update_last_checkpoint", {**theirs, "last_checkpoint_time": 5, "completed_epochs": 1}),
        ("DELETE", "/delete_job", theirs),
    ):
        assert genai.ask(method, path, body)[0] in (200, 201), path
    kinds = ["RecordAdded", *["RecordChanged"] * 4, "RecordDeleted"]
    assert said(service, before) == [(kind, None, "ann", address(genai), {"name": "theirs"}) for kind in kinds]


def test_what_was_refused_or_changed_nothing_is_not(service, genai):
    assert genai.ask("POST", "/add_job", RECORD)[0] == 201
    before = service.store.last_event_id()
    assert genai.ask("POST", "/add_job", RECORD)[0] == 400
    assert genai.ask("PUT", "/update_job", {"job_name": "theirs", "gpu_assigned": 2})[0] == 200
    assert genai.ask("PUT", "/update_job", {"job_name": "theirs", "gpu_assigned": "two"})[0] == 400
    assert genai.ask("DELETE", "/delete_job", {"job_name": "nobody"})[0] == 404
    assert said(service, before) == []
    genai.ask("DELETE", "/delete_job", {"job_name": "theirs"})


def test_what_is_done_to_a_job_is_on_its_own_record(service, genai):
    with running(service, "small", gpus="2") as small, running(service, "wide", gpus="1..4") as wide:
        service.worker.end(small)
        before = service.store.last_event_id()
        assert of_job(service, wide).ask("PUT", "/update_job", {"job_name": "wide", "team": "nlp"})[0] == 200
        assert genai.ask("POST", "/scale/wide")[0] == 200
        assert genai.ask("DELETE", "/delete_job", {"job_name": "small"})[0] == 200
        assert said(service, before) == [
            ("RecordChanged", wide, "ann", f"job {wide}", {"name": "wide"}),
            ("ScaleRequested", wide, "ann", address(genai), {"width": 4}),
            ("Deleted", small, "ann", address(genai), {}),
        ]


def test_through_a_port_it_is_the_port(service):
    door = service.ask("POST", "/doors", {"name": "genai", "port": 0}).json
    before = service.store.last_event_id()
    assert Foreign(door["url"]).ask("POST", "/add_job", RECORD)[0] == 201
    where = f"door genai on port {door['port']}"
    assert said(service, before) == [("RecordAdded", None, "ann", where, {"name": "theirs"})]
    Foreign(door["url"]).ask("DELETE", "/delete_job", {"job_name": "theirs"})
    service.ask("DELETE", f"/doors/{door['port']}")


def test_an_address_is_on_record_when_it_is_made(service):
    """Whoever is to revoke it must know that it is about."""
    before = service.store.last_event_id()
    made = service.ask("POST", "/doors/address", {"name": "genai", "lasts_s": 3600}).json
    [(kind, job, actor, origin, detail)] = said(service, before)
    assert (kind, job, actor, detail) == (
        "DoorAddressMade",
        None,
        "ann",
        {"door": "genai", "address": made["id"], "expires_at": made["expires_at"]},
    )
    assert origin.startswith("127.0.0.1")
    assert made["address"].rpartition("/")[2] not in str(service.ask("GET", f"/events?after={before}").json)
