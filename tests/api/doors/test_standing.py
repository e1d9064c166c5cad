"""Doors that the settings open: under names of their own, for as long as the server runs."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator

import pytest

from api.service import Service
from swell.api.doors.manage import open_standing
from swell.config import Config, Door
from swell.errors import Rejected

from .foreign import Foreign


@pytest.fixture
def service(tmp_path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


def free_port(address: str = "127.0.0.2") -> int:
    with socket.create_server((address, 0)) as listener:
        return int(listener.getsockname()[1])


def stand(service: Service, *doors: Door) -> None:
    open_standing(dataclasses.replace(service.services, config=Config(doors=doors)))


def test_a_standing_door_answers_at_its_address_to_its_names_and_loopbacks(service):
    port = free_port()
    stand(service, Door("genai", port, "ann", "127.0.0.2", ("metadata", "metadata.ml.svc")))
    address = f"http://127.0.0.2:{port}"
    names = ("metadata", "metadata.ml.svc", "localhost", "127.0.0.1", "127.0.0.2", "evil.example")
    found = {name: Foreign(address, (("Host", f"{name}:{port}"),)).raw("GET", "/get_all_jobs")[0] for name in names}
    assert found == dict.fromkeys(names[:4], 200) | {"127.0.0.2": 403, "evil.example": 403}
    assert Foreign(address, (("Host", "metadata"),)).raw("GET", "/get_all_jobs")[0] == 403


def test_a_standing_door_is_listed_audited_and_closed_by_the_settings_alone(service):
    port = free_port()
    stand(service, Door("genai", port, "ann", "127.0.0.2"))
    [listed] = service.ask("GET", "/doors").json["doors"]
    assert (listed["name"], listed["port"], listed["owner"], listed["problem"]) == ("genai", port, "ann", None)
    assert service.ask("DELETE", f"/doors/{port}").error == (
        409,
        "Conflict",
        f"port {port} is opened by the settings (doors); remove it there and restart the server",
    )
    events = service.ask("GET", "/events").json["events"]
    said = [(event["actor"], event["origin"], event["detail"]) for event in events if event["kind"] == "DoorOpened"]
    assert said == [("ann", "config.json", {"door": "genai", "port": port})]
    assert service.store.doors.opened() == []


def test_a_port_that_somebody_has_taken_is_told_in_the_listing(service):
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        stand(service, Door("genai", port, "ann", "127.0.0.2"))
        [listed] = service.ask("GET", "/doors").json["doors"]
    assert listed["problem"] == (
        f"port {port} cannot be used: Address already in use; choose another port with --port, or stop the "
        "program that listens there"
    )


@pytest.mark.parametrize(
    ("door", "said"),
    [
        (Door("genia", 5000, "ann"), "there is no door 'genia'; did you mean 'genai'? (known: genai, kubeprofiler)"),
        (Door("genai", 5000, "bob"), "this server belongs to ann alone; a door acts as that user, not as 'bob'"),
    ],
)
def test_a_mistake_in_the_settings_keeps_the_server_from_starting(service, door, said):
    with pytest.raises(Rejected) as refused:
        stand(service, door)
    assert str(refused.value) == said
    assert service.ask("GET", "/doors").json["doors"] == []
