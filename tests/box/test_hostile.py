"""One user cannot stall another: a hostile one tries everything they may call, and `swell ps` of a second stays quick.

Measured is the request itself, from the connection to the last byte, because the start of an interpreter tells more of
the machine than of us; and what it takes without any attack is measured beside it. The second itself is held by
`tools/soak.py hostile`, on a machine that does nothing else; beside other tests only a stall of several seconds counts
(most of these attacks took 30 s and more before there were shares).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.service import Service
from box.hostile.attacks import ATTACKS, Attack, flood
from box.hostile.private import PRIVATE_ATTACKS, under
from box.hostile.stage import Felt, Stage
from box.hostile.worst import NOT_FOR_USERS, WORST
from box.machine import Machine, wait_for
from server import Server
from swell.api.connections import ANSWER_LOOK_S

SECONDS = 3.0
BOUND_S = 1.0
STALLED_S = 10.0  # on two cores that other tests use, too


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Machine() as machine:
        made = Stage(machine)
        made.prepare()
        yield made


def refuse_slow(attacked: Felt, unattacked: Felt, bound_s: float = BOUND_S) -> None:
    said = f"under attack {attacked}, without {unattacked}"
    print(said)
    assert attacked.problem == "", said
    assert attacked.worst_s - unattacked.worst_s < bound_s, said


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_another_user_is_not_stalled(stage: Stage, attack: Attack):
    refuse_slow(attack.felt(stage, SECONDS), Felt(0.0, 0.0, 1), STALLED_S)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_another_user_is_answered_within_a_second(stage: Stage, attack: Attack):
    unattacked = stage.feel(1.0)
    refuse_slow(attack.felt(stage, SECONDS), unattacked)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("endpoint", WORST)
def test_the_heaviest_request_to_any_endpoint_from_16_threads_stalls_nobody_else(stage: Stage, endpoint: str):
    unattacked = stage.feel(1.0)
    refuse_slow(flood(endpoint).felt(stage, SECONDS), unattacked)


@pytest.mark.slow
@pytest.mark.soak
def test_the_real_command_answers_while_another_user_floods(stage: Stage):
    unattacked_s = stage.command_s()
    with flood("GET /api/v1/jobs").begin(stage):
        assert stage.command_s() - unattacked_s < BOUND_S


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE_ATTACKS)
def test_who_has_no_token_keeps_the_owner_of_a_private_server_from_nothing(tmp_path, name: str):
    with Server(tmp_path) as server:
        refuse_slow(under(server, name, SECONDS), Felt(0.0, 0.0, 1), STALLED_S)


@pytest.mark.slow
def test_who_does_not_read_their_answer_is_hung_up_on_and_written_down(stage: Stage):
    with stage.machine.connect_to_socket() as unread:
        unread.sendall(b"GET /api/v1/jobs?all=true&all_users=true&lines=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = f"connection closed: the answer was not read within {ANSWER_LOOK_S:g} s"
        wait_for(lambda: said in stage.machine.log(), said)
        received = b"".join(iter(lambda: unread.recv(1 << 20), b""))
    assert received.startswith(b"HTTP/1.1 200 ")
    assert not received.endswith(b"0\r\n\r\n")  # how a whole answer ends


def test_every_endpoint_that_a_user_may_call_has_an_attack(tmp_path):
    """A new one without a line in `hostile/worst.py` fails here."""
    service = Service(tmp_path)
    try:
        found = set(endpoints(service.app))
    finally:
        service.close()
    assert len(found) > 50
    assert found == WORST.keys() | NOT_FOR_USERS.keys()


def endpoints(guard: Any) -> Iterator[str]:
    """As FastAPI has them, of the API and of all doors."""
    for app in (guard._app, *guard._doors.rooms.values()):
        for included in app.routes:
            for route in getattr(included, "original_router", app).routes:
                if hasattr(route, "methods"):
                    yield from (f"{method} {route.path}" for method in route.methods if method != "HEAD")
