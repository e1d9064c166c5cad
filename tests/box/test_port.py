"""Nobody but root can listen where jobs report to a box server, also while it is away."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from box.machine import SYSTEM_PYTHON, Machine
from box.ports import reserved_port
from server import Gate
from swell.errors import Conflict, Denied
from swell.machine import listening
from swell.machine.state_folder import StateFolder
from swell.server import listeners
from swell.server.listeners import BOX_PORTS, open_listeners

pytestmark = pytest.mark.slow

RESERVED = set(BOX_PORTS)
OWN_PORTS = range(981, 991)  # of tests that open listeners themselves; a box server of another test has the real ones
TAKES = "import socket, sys; socket.create_server((sys.argv[1], int(sys.argv[2])))"
REPORTS = """
import http.client, json, os, sys
from urllib.parse import urlsplit
attempt, url = os.environ["SWELL_ATTEMPT"], urlsplit(os.environ["SWELL_URL"])
print("ready", flush=True)
sys.stdin.readline()
asked = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
headers = {"Authorization": "Bearer " + os.environ["SWELL_TOKEN"], "Content-Type": "application/json"}
body = json.dumps({"rank": 0, "metrics": {"loss": 0.25}})
asked.request("POST", f"/api/v1/attempts/{attempt}/report", body, headers)
print("answered", asked.getresponse().status, flush=True)
"""


@pytest.fixture
def gate(box: Machine) -> Iterator[Gate]:
    made = Gate(box.root / "gate")
    made.path.chmod(0o644)
    yield made
    made.close()


def test_while_the_server_is_away_no_user_can_take_its_port_and_a_running_job_finds_it_again(box, gate):
    anna, ben, cleo = box.people
    script = box.root / "reports.py"
    script.write_text(REPORTS)
    script.chmod(0o644)
    address = box.address
    job = anna.start("--", "sh", "-c", f"exec {SYSTEM_PYTHON} {script} < {gate}")
    box.until_output(job, b"ready")
    box.down(signal.SIGKILL)
    taken = [person.run(SYSTEM_PYTHON, "-c", TAKES, *map(str, address)) for person in (anna, ben, cleo)]
    assert ["PermissionError" in one.stderr for one in taken] == [True, True, True], taken
    box.up()
    assert box.address == address
    assert address[1] in RESERVED
    gate.open()
    assert b"answered 200" in box.until_output(job, b"answered")
    assert box.until(job, "succeeded")["metrics"] == {"loss": 0.25}


@pytest.fixture
def own_ports(monkeypatch: pytest.MonkeyPatch) -> Iterator[range]:
    with reserved_port([OWN_PORTS[0]]):
        monkeypatch.setattr(listeners, "BOX_PORTS", OWN_PORTS)
        yield OWN_PORTS


@pytest.fixture
def empty(tmp_path: Path, own_ports: range) -> StateFolder:
    """A state folder in which no box server has been yet."""
    made = StateFolder(tmp_path / "state", tmp_path / "run" / "swell.sock")
    made.prepare()
    return made


def port_taken(state: StateFolder, port: int = 0) -> int:
    """The loopback port of a server that starts here; it ends at once."""
    found = open_listeners(state, port, None)
    taken: int = found.loopback.getsockname()[1]
    for listener in found.plain:
        listener.close()
    return taken


@contextmanager
def occupied(*ports: int) -> Iterator[None]:
    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


@pytest.mark.parametrize("remembered", [None, "", "0", "40000", "no number"])
def test_a_box_server_takes_a_port_that_only_root_can_from_the_first_start_on(empty, remembered):
    """The first start asked the kernel for any port: a user could take it while the server was away."""
    if remembered is not None:
        (empty.root / "port").write_text(remembered)
    first = port_taken(empty)
    assert first in OWN_PORTS
    assert port_taken(empty) == first


def test_a_box_server_does_not_start_elsewhere_while_running_jobs_report_to_its_port(empty):
    first = port_taken(empty)
    with occupied(first), pytest.raises(Conflict) as refused:
        port_taken(empty)
    assert str(refused.value) == (
        f"port {first} cannot be used: Address already in use; running jobs report to this port: stop the "
        f"program that listens there now, or, if no job is running, remove {empty.root / 'port'}"
    )
    assert port_taken(empty) == first


def test_after_a_restart_of_the_machine_a_box_server_may_take_another_port_of_root(empty):
    first = port_taken(empty)
    os.utime(empty.root / "port", (1, 1))
    with occupied(first):
        assert port_taken(empty) in set(OWN_PORTS) - {first}


def test_a_box_server_never_takes_a_port_of_users_because_all_of_root_are_taken(empty, monkeypatch):
    safe = OWN_PORTS[-3:]
    monkeypatch.setattr(listeners, "BOX_PORTS", safe)
    with occupied(*safe), pytest.raises(Conflict) as refused:
        port_taken(empty)
    assert str(refused.value) == (
        "a box server listens on a port that only root can use, and none of the ports 988 to 990 is free: "
        "port 990 cannot be "
        "used: Address already in use; stop the program that listens there, or give the server the right to use "
        "the port"
    )


def test_a_box_server_does_not_start_where_users_may_take_every_port(empty, monkeypatch, tmp_path):
    """As in a container's network, where the kernel's setting is 0."""
    setting = tmp_path / "ip_unprivileged_port_start"
    setting.write_text("0\n")
    monkeypatch.setattr(listeners, "PORTS_OF_USERS", setting)
    monkeypatch.setattr(listening, "PORTS_OF_USERS", setting)
    with pytest.raises(Denied) as refused:
        port_taken(empty)
    assert str(refused.value) == (
        f"{setting} is 0, so any user of this machine could take the port that jobs report to while the server "
        "is down; reserve it for root again: sysctl -w net.ipv4.ip_unprivileged_port_start=1024"
    )


def test_a_box_server_refuses_a_port_of_users_by_name_and_takes_one_of_root(empty):
    with pytest.raises(Denied) as refused:
        port_taken(empty, 5000)
    assert str(refused.value) == (
        "--port 5000 could be taken by any user of this machine while the box server is down, and jobs send "
        "their tokens there; choose a port below 1024, which only root can use"
    )
    assert port_taken(empty, OWN_PORTS[0]) == OWN_PORTS[0]
