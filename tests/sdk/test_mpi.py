"""Who may say something in a gang of MPI: real sockets, and task 0 as a process."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.model.launcher import Launcher, launch_words
from swell_sdk.mpi import connection as mpi
from swell_sdk.mpi.program import host_name, hostfile, launcher_variables, make_folder

SDK = Path(mpi.__file__).parents[2]
TOLD = {"SWELL_TOKEN": "swj.1.2.3.abc", "SWELL_ATTEMPT": "1.2"}
KEY = mpi.attempt_key(TOLD)
PATIENCE_S = 120.0  # on a busy machine each of the Pythons that a test starts takes seconds


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def lines(pair: tuple[socket.socket, socket.socket], key: bytes = b"k") -> tuple[mpi.Line, mpi.Line]:
    return mpi.Line(pair[0], key, is_asking=True), mpi.Line(pair[1], key, is_asking=False)


def test_what_one_side_says_the_other_hears_in_order_until_it_closes(pair) -> None:
    asking, asked = lines(pair)
    asking.send(mpi.RUN, 7, b"orted")
    asking.send(mpi.BYE)
    asking.close()
    assert list(asked.messages()) == [(mpi.RUN, 7, b"orted"), (mpi.BYE, 0, b"")]


def test_a_message_that_is_changed_repeated_or_sent_back_is_not_taken(pair, capsys) -> None:
    recorder, tap = socket.socketpair()
    mpi.Line(recorder, b"k", is_asking=True).send(mpi.RUN, 1, b"true")
    said = tap.recv(1000)
    changed = said.replace(b"true", b"evil")
    for text, expected in (
        (changed, []),
        (said + said, [(mpi.RUN, 1, b"true")]),
    ):
        ends = socket.socketpair()
        ends[0].sendall(text)
        ends[0].shutdown(socket.SHUT_WR)
        assert list(mpi.Line(ends[1], b"k", is_asking=False).messages()) == expected
        ends = [end.close() for end in ends]
    pair[0].sendall(said)
    assert list(mpi.Line(pair[1], b"k", is_asking=True).messages()) == [], "it is its own, sent back"
    assert capsys.readouterr().err.count("was changed on its way") == 3
    recorder.close()
    tap.close()


@pytest.mark.parametrize("key", [b"another", mpi.attempt_key({**TOLD, "SWELL_ATTEMPT": "1.3"})])
def test_who_does_not_know_the_secret_of_the_attempt_is_refused(pair, key) -> None:
    """The token of an attempt is its own; the key is also made from its number."""
    found: list[BaseException] = []

    def come() -> None:
        try:
            mpi.come(pair[0], key, 1, 4)
        except (OSError, EOFError, mpi.Refused) as error:
            found.append(error)

    foreign = threading.Thread(target=come)
    foreign.start()
    with pytest.raises(mpi.Refused, match="it does not know the secret of this attempt"):
        mpi.receive(pair[1], KEY)
    pair[1].shutdown(socket.SHUT_RDWR)
    foreign.join(PATIENCE_S)
    assert len(found) == 1


def test_a_task_obeys_nobody_who_has_taken_the_port_of_task_0(pair) -> None:
    def pretend() -> None:
        pair[1].sendall(b"\0" * 32)
        pair[1].recv(1000)
        pair[1].sendall(b"\0" * mpi.MAC_BYTES)

    foreign = threading.Thread(target=pretend)
    foreign.start()
    with pytest.raises(mpi.Refused, match="it is not task 0"):
        mpi.come(pair[0], KEY, 1, 4)
    foreign.join(PATIENCE_S)


def test_two_tasks_of_one_attempt_know_each_other(pair) -> None:
    found: list[mpi.Line] = []
    task = threading.Thread(target=lambda: found.append(mpi.come(pair[0], KEY, 3, 4)))
    task.start()
    number, slots, line = mpi.receive(pair[1], KEY)
    task.join(PATIENCE_S)
    line.send(mpi.RUN, 1, b"orted")
    assert (number, slots, next(found[0].messages())) == (3, 4, (mpi.RUN, 1, b"orted"))


def test_a_task_that_comes_again_is_reached_where_it_came_from_last() -> None:
    """Incident: on a busy machine a task gave up waiting for the answer, and was refused when it came again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: dict[int, tuple[int, mpi.Line]] = {}
        gathering = threading.Thread(target=lambda: found.update(mpi.Gathering(KEY, 3).run(listener, PATIENCE_S)))
        gathering.start()
        place = listener.getsockname()
        first, again = (mpi.connect(KEY, place, 1, 1) for _ in range(2))
        assert list(first.messages()) == [], "its connection is closed"
        other = mpi.connect(KEY, place, 2, 1)
        gathering.join(PATIENCE_S)
    found[1][1].send(mpi.BYE)
    assert next(again.messages()) == (mpi.BYE, 0, b"")
    assert sorted(found) == [1, 2]
    other.close()


def test_who_connects_and_says_nothing_keeps_no_task_waiting(monkeypatch) -> None:
    """64 silent connections of anybody kept the tasks of a gang out for ten seconds, again and again."""
    monkeypatch.setattr(mpi, "HANDSHAKES_MAX", 4)
    found: dict[int, tuple[int, mpi.Line]] = {}
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        place = listener.getsockname()
        silent = [socket.create_connection(place) for _ in range(20)]
        gathering = threading.Thread(target=lambda: found.update(mpi.Gathering(KEY, 2).run(listener, PATIENCE_S)))
        gathering.start()
        line = mpi.connect(KEY, place, 1, 3)
        gathering.join(mpi.HANDSHAKE_S / 2)
        assert {task: slots for task, (slots, _) in found.items()} == {1: 3}
    for one in (line, *silent):
        one.close()


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ({"a": 2}, "a slots=2\n"),
        ({"a": 4, host_name(1): 4, host_name(2): 1}, "a slots=4\nswell-task-1 slots=4\nswell-task-2 slots=1\n"),
        ({"launcher": 0, host_name(1): 2}, "swell-task-1 slots=2\n"),
    ],
)
def test_the_hostfile_has_the_tasks_in_the_order_of_ranks_without_those_that_start_none(slots, text) -> None:
    assert hostfile(slots) == text


def test_a_binding_that_the_user_asks_for_is_kept() -> None:
    name, shell = "OMPI_MCA_hwloc_base_binding_policy", Path("/a/rsh")
    assert launcher_variables(Path("/a/hosts"), shell, {})[name] == "none"
    assert name not in launcher_variables(Path("/a/hosts"), shell, {name: "core"})


def test_a_folder_that_open_mpi_would_cut_at_a_blank_is_replaced(tmp_path, monkeypatch) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a b"))
    folder = make_folder()
    assert (folder.parent, list((tmp_path / "a b").iterdir())) == (Path("/tmp"), [])
    folder.rmdir()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def start(task: int, port: int, *command: str, tasks: int = 2, **env: str) -> subprocess.Popen[str]:
    told = {
        **os.environ,
        **TOLD,
        "SWELL_SDK": str(SDK),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "SWELL_TASK_INDEX": str(task),
        "SWELL_TASK_COUNT": str(tasks),
        "NUM_GPUS": "0",
        "RANK": str(task),
        **env,
    }
    return subprocess.Popen(
        launch_words(Launcher.MPI, command), env=told, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


#: What mpirun does: it asks its remote shell to run something on the second host.
LAUNCHER = 'echo "at $TASK"; cat "$SWELL_HOSTFILE"; $OMPI_MCA_plm_rsh_agent "$@"'


def connected(port: int) -> socket.socket:
    """As soon as task 0 listens."""
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            threading.Event().wait(0.05)
    raise AssertionError("task 0 does not listen")


def test_task_0_refuses_strangers_and_its_command_runs_things_in_the_other_task() -> None:
    port = free_port()
    command = ("sh", "-c", LAUNCHER, "sh", "-x", "swell-task-1")
    run = 'echo "in $TASK with ${RANK-no} rank"; echo oops >&2; exit 9'
    first = start(0, port, *command, run, TASK="0")
    with connected(port) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n".ljust(mpi.HELLO.size + mpi.MAC_BYTES, b"x"))
        refused = b"".join(iter(lambda: stranger.recv(1000), b""))
    second = start(1, port, *command, run, TASK="1")
    output, errors = first.communicate(timeout=PATIENCE_S)
    assert (first.returncode, output) == (
        9,
        f"at 0\n{os.uname().nodename} slots=1\nswell-task-1 slots=1\nin 1 with no rank\n",
    )
    assert errors == ("swell: refused a connection from 127.0.0.1: it does not know the secret of this attempt\noops\n")
    assert len(refused) == 32, "a random number, and nothing else"
    assert (*second.communicate(timeout=PATIENCE_S), second.returncode) == ("", "", 0)


def test_a_host_that_no_task_is_and_a_program_that_is_not_there_are_named() -> None:
    alone = start(0, free_port(), "sh", "-c", LAUNCHER, "sh", "elsewhere", "true", tasks=1, TASK="0")
    _, errors = alone.communicate(timeout=PATIENCE_S)
    assert (alone.returncode, errors) == (
        255,
        "swell: no task of this job is called elsewhere; $SWELL_HOSTFILE names them\n",
    )
    missing = start(0, free_port(), "./no-mpirun", tasks=1)
    assert missing.communicate(timeout=PATIENCE_S)[1] == "swell: cannot start ./no-mpirun: No such file or directory\n"
    assert missing.returncode == 127


@pytest.mark.parametrize("slots", ["-1", "x", "99999999999", ""])
def test_slots_that_are_no_number_are_refused(slots: str) -> None:
    alone = start(0, free_port(), "true", tasks=1, SWELL_MPI_SLOTS=slots)
    _, errors = alone.communicate(timeout=PATIENCE_S)
    assert (alone.returncode, errors) == (
        1,
        f"swell: SWELL_MPI_SLOTS is {slots!r}; it must be a number from 0 to {mpi.SLOTS_MAX}\n",
    )


def test_what_a_task_runs_ends_with_task_0(tmp_path: Path) -> None:
    port = free_port()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ("sh", "-c", LAUNCHER, "sh", "swell-task-1", f"echo $$; exec cat {pipe}")
    first, second = start(0, port, *words, TASK="0"), start(1, port, *words, TASK="1")
    assert first.stdout is not None
    pid = [first.stdout.readline() for _ in range(4)][-1]
    first.kill()
    first.wait()
    assert second.communicate(timeout=PATIENCE_S)[1] == "swell: the connection to task 0 was lost\n"
    assert second.returncode == 1
    assert not Path(f"/proc/{int(pid)}").exists()
