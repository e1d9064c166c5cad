"""Logs of pods are kept, whole and once, after the pods are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.logs.file import LogFile, is_kept
from swell.engines.kubernetes.logs.keeper import FETCHES_MAX, LogKeeper
from swell.engines.kubernetes.logs.lines import Had, LineReader
from swell.engines.kubernetes.logs.stream import ENDED_TRIES_MAX, MUTE_AFTER, ContainerRun
from swell.engines.logfolder import LogFolder

from .apiserver import ApiServer
from .faults import Fault, Scripted
from .keeping import ATTEMPT, PATIENCE_S, QUICK, file_of, source_of, text_of, until
from .logrounds import play
from .podlogs import NANO, RunningPod, stamped

T = 1_794_800_000 * NANO
Make = Callable[..., LogKeeper]
Followed = tuple[RunningPod, LogKeeper]


@pytest.fixture
def make(port: ApiClient, tmp_path: Path) -> Iterator[Make]:
    made: list[LogKeeper] = []

    def keeper(**options: object) -> LogKeeper:
        made.append(LogKeeper(port, tmp_path, pace=QUICK, **options))  # type: ignore[arg-type]
        return made[-1]

    yield keeper
    for each in made:
        each.close()


@pytest.fixture
def followed(server: ApiServer, make: Make, tmp_path: Path) -> Followed:
    """A pod that has said "one", which is kept, and goes on."""
    pod, keeper = RunningPod(server), make()
    pod.logs.write(T, b"one")
    keeper.follow(source_of(pod))
    until(lambda: text_of(tmp_path) == b"one\n")
    return pod, keeper


def test_a_log_is_read_while_it_grows_and_complete_when_the_pod_has_ended(followed: Followed, tmp_path: Path) -> None:
    pod, keeper = followed
    keeper.follow(source_of(pod))
    pod.logs.write(T + NANO, b"two", is_partial=True)
    until(lambda: text_of(tmp_path) == b"one\ntwo")
    assert not keeper.finish(source_of(pod))
    pod.end()
    assert keeper.finish(source_of(pod), PATIENCE_S)
    pod.delete()
    assert (keeper.finish(source_of(pod)), text_of(tmp_path)) == (True, b"one\ntwo")
    assert LogFolder(tmp_path).read(ATTEMPT, 0, 4, 100) == (4, b"two")


def test_what_was_written_since_a_moment_is_found_by_the_times_of_its_lines(
    server: ApiServer, make: Make, tmp_path: Path
) -> None:
    pod, keeper, logs = RunningPod(server), make(), LogFolder(tmp_path)
    for second, text in ((0, b"one"), (0, b"two"), (5, b"three"), (6, b"four")):
        pod.logs.write(T + second * NANO + NANO // 2, text)
    pod.end()
    assert keeper.finish(source_of(pod), PATIENCE_S)
    start = T // NANO
    moments = (0, start, start + 0.4, start + 1, start + 5.9, start + 6, start + 7)
    assert [logs.offset_at(ATTEMPT, 0, moment) for moment in moments] == [0, 0, 0, 8, 8, 14, None]


def test_only_the_container_that_kubectl_shows_is_kept_or_the_one_that_is_named(server: ApiServer, make: Make) -> None:
    pod, keeper = RunningPod(server), make()
    pod.end()
    keeper.finish(source_of(pod), PATIENCE_S)
    assert server.seen[-1].query["container"] == "main"
    document = server.storage.get("pods", pod.key)
    annotated = {**document, "metadata": {"uid": "u", "annotations": {"kubectl.kubernetes.io/default-container": "b"}}}
    assert [ContainerRun.parse(annotated, None).container, ContainerRun.parse(annotated, "c").container] == ["b", "c"]


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_orderly", [False, True], ids=["torn", "as if in order"])
@pytest.mark.parametrize("after", [0, 5, 40, 70])
def test_a_stream_that_breaks_is_taken_up_where_it_was(
    server: ApiServer, make: Make, tmp_path: Path, after: int, is_orderly: bool
) -> None:
    pod, keeper = RunningPod(server), make()
    breaks = deque([(after, is_orderly)])
    pod.logs.breaks = lambda follow: breaks.popleft() if breaks else None
    for text in (b"one", b"one", b"two\xff\0"):
        pod.logs.write(T, text)
    keeper.follow(source_of(pod))
    until(lambda: text_of(tmp_path) == b"one\none\ntwo\xff\0\n")
    pod.end()
    assert keeper.finish(source_of(pod), PATIENCE_S)
    assert text_of(tmp_path) == b"one\none\ntwo\xff\0\n"


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.DROPPED, Fault.TOO_MANY, Fault.NO_TOKEN, Fault.GONE])
def test_an_api_server_in_trouble_is_asked_again(server: ApiServer, make: Make, tmp_path: Path, fault: Fault) -> None:
    pod, keeper = RunningPod(server), make()
    pod.logs.write(T, b"one")
    pod.end()
    server.faults = Scripted(answers=deque([None, *[fault] * 5]))
    assert keeper.finish(source_of(pod), PATIENCE_S)
    assert text_of(tmp_path) == b"one\n"


def test_a_container_that_begins_anew_goes_on_in_the_same_log(server: ApiServer, make: Make, tmp_path: Path) -> None:
    pod, keeper = RunningPod(server, policy="OnFailure"), make()
    pod.logs.write(T, b"no end", is_partial=True)
    keeper.follow(source_of(pod))
    until(lambda: text_of(tmp_path) == b"no end")
    keeper.close()
    pod.logs.write(T, b" yet", is_partial=True)
    pod.restart()
    pod.logs.write(T + NANO, b"again")
    keeper = make()
    keeper.follow(source_of(pod))
    until(lambda: text_of(tmp_path) == b"no end yet\nagain\n", "the last life is read first")
    pod.end()
    assert keeper.finish(source_of(pod), PATIENCE_S)
    assert text_of(tmp_path) == b"no end yet\nagain\n"


def test_a_pod_that_is_gone_has_no_more_to_say(followed: Followed, tmp_path: Path) -> None:
    pod, keeper = followed
    pod.delete()
    pod.logs.end()
    assert keeper.finish(source_of(pod), PATIENCE_S)
    assert text_of(tmp_path) == b"one\n"


def test_the_log_of_another_pod_of_the_same_name_is_not_taken_for_its_own(
    server: ApiServer, make: Make, tmp_path: Path
) -> None:
    """Pods keep their names from one attempt to the next."""
    pod, keeper = RunningPod(server), make()
    pod.delete()
    other = RunningPod(server)
    other.logs.write(T, b"of another attempt")
    other.end()
    assert keeper.finish(source_of(pod), PATIENCE_S)
    assert text_of(tmp_path) == b""


def test_the_next_pod_of_a_task_begins_a_line_of_its_own(server: ApiServer, make: Make, tmp_path: Path) -> None:
    first, keeper = RunningPod(server, "first"), make()
    first.logs.write(T, b"no end", is_partial=True)
    first.end()
    assert keeper.finish(source_of(first), PATIENCE_S)
    second = RunningPod(server, "second")
    second.logs.write(T - 5 * NANO, b"from a node whose clock is late")
    second.end()
    assert keeper.finish(source_of(second), PATIENCE_S)
    assert text_of(tmp_path) == b"no end\nfrom a node whose clock is late\n"
    again = make()
    assert [again.finish(source_of(pod), PATIENCE_S) for pod in (first, second)] == [True, True]
    assert text_of(tmp_path) == b"no end\nfrom a node whose clock is late\n"


def test_a_pod_on_a_lost_node_keeps_its_successor_waiting_for_a_while_only(
    server: ApiServer, make: Make, tmp_path: Path
) -> None:
    now = [1000.0]
    lost, successor, keeper = RunningPod(server, "lost"), RunningPod(server, "next"), make(monotonic=lambda: now[0])
    lost.logs.write(T, b"lost")
    keeper.follow(source_of(lost))
    until(lambda: text_of(tmp_path) == b"lost\n")
    successor.logs.write(T + NANO, b"next")
    keeper.follow(source_of(successor))
    now[0] += 31.0

    def is_followed() -> bool:
        keeper.follow(source_of(successor))
        return text_of(tmp_path) == b"lost\nnext\n"

    until(is_followed)
    assert keeper.finish(source_of(lost))


def test_a_node_that_gives_no_logs_is_given_up_quietly(server: ApiServer, make: Make, tmp_path: Path) -> None:
    keeper = make()
    pods = [RunningPod(server, f"p{number}") for number in range(30)]
    for index, pod in enumerate(pods):
        pod.logs.has_kubelet = False
        keeper.follow(source_of(pod, index=index))
        pod.end()
    sources = [source_of(pod, index=index) for index, pod in enumerate(pods)]
    until(lambda: all(keeper.finish(source) for source in sources))
    later = RunningPod(server, "later")
    keeper.follow(source_of(later, index=99))
    later.end()
    assert keeper.finish(source_of(later, index=99), PATIENCE_S)
    keeper.close()
    assert (later.logs.streams, text_of(tmp_path)) == (0, b"")
    assert sum(pod.logs.streams for pod in pods) <= 3 * (len(pods) + MUTE_AFTER)  # the port asks three times


def test_a_pod_that_has_ended_on_a_node_that_was_there_before_is_tried_a_few_times(
    followed: Followed, tmp_path: Path
) -> None:
    pod, keeper = followed
    pod.logs.has_kubelet = False
    before = pod.logs.streams
    pod.end()
    assert keeper.finish(source_of(pod), PATIENCE_S)
    assert pod.logs.streams - before == ENDED_TRIES_MAX * 3  # the port asks three times
    assert text_of(tmp_path) == b"one\n"


# -- limits --------------------------------------------------------------------------------------------------------


def test_pods_beyond_the_limit_are_read_when_they_have_ended(server: ApiServer, make: Make, tmp_path: Path) -> None:
    keeper = make(streams_max=2)
    pods = [RunningPod(server, f"p{number}") for number in range(4 + FETCHES_MAX)]
    for index, pod in enumerate(pods):
        pod.logs.write(T, b"%d" % index)
        keeper.follow(source_of(pod, index=index))
    until(lambda: [text_of(tmp_path, index) for index in (0, 1)] == [b"0\n", b"1\n"])
    for pod in pods[2:]:
        pod.end()
    for index, pod in list(enumerate(pods))[2:]:
        assert keeper.finish(source_of(pod, index=index), PATIENCE_S)
    assert [text_of(tmp_path, index) for index in range(len(pods))] == [b"%d\n" % index for index in range(len(pods))]
    assert {pod.logs.streams for pod in pods[:2]} == {1}


def test_a_log_above_its_limit_loses_its_beginning_and_keeps_its_offsets(tmp_path: Path) -> None:
    file = LogFile(file_of(tmp_path).parent, "uid", bytes_max=4 * 4096, step=4096)
    reader = LineReader(Had())
    for number in range(8):
        file.append(reader.feed(stamped(T + number) + b" " + bytes([65 + number]) * 4095 + b"\n"), reader.had)
    file.close()
    start, data = LogFolder(tmp_path).read(ATTEMPT, 0, 0, 1 << 20)
    assert (start, data[:2], len(data)) == (4 * 4096, b"EE", 4 * 4096)


def test_closing_leaves_the_rest_to_the_next_keeper(followed: Followed, make: Make, tmp_path: Path) -> None:
    pod, keeper = followed
    keeper.close()
    pod.logs.write(T, b"two")
    pod.end()
    assert not keeper.finish(source_of(pod))
    assert make().finish(source_of(pod), PATIENCE_S)
    assert text_of(tmp_path) == b"one\ntwo\n"


# -- crashes -------------------------------------------------------------------------------------------------------


def test_bytes_that_no_mark_vouches_for_are_cut_off_and_read_again(tmp_path: Path) -> None:
    folder = file_of(tmp_path).parent
    file = LogFile(folder, "uid")
    reader = LineReader(Had())
    file.append(reader.feed(stamped(T) + b" one\n"), reader.had)
    file.close()
    with (folder / "log").open("ab") as log, (folder / "index").open("ab") as index:
        log.write(b"tw")
        index.write(b"torn")
    file = LogFile(folder, "uid")
    assert (text_of(tmp_path), file.had, (folder / "index").stat().st_size) == (b"one\n", reader.had, 16)
    file.close()


@pytest.mark.parametrize("damage", ["log", "mark"])
def test_what_a_power_cut_took_is_read_again_from_the_beginning(tmp_path: Path, damage: str) -> None:
    folder = file_of(tmp_path).parent
    for uid in ("first", "second"):
        file, reader = LogFile(folder, uid), LineReader(Had())
        file.append(reader.feed(stamped(T) + b" " + uid.encode() + b"\n"), reader.had)
        file.completed()
        file.close()
    assert (is_kept(folder, "first"), is_kept(folder, "second")) == (True, True)
    if damage == "log":
        os.truncate(folder / "log", 8)
    else:
        (folder / "mark").write_bytes(bytes(100))
    file = LogFile(folder, "second")
    assert (text_of(tmp_path), file.had) == (b"first\n" if damage == "log" else b"", Had())
    file.close()


@pytest.mark.parametrize("seed", range(6))
def test_the_file_is_the_pods_log_whatever_broke_and_whoever_was_killed(tmp_path: Path, seed: int) -> None:
    """Repeat one with `.venv/bin/python -m tests.engines.kubernetes.logrounds SEED`."""
    played = play(seed, tmp_path)
    assert played.kept == played.written


def test_a_keeper_killed_for_real_is_followed_by_one_that_goes_on(server: ApiServer, tmp_path: Path) -> None:
    pod = RunningPod(server)
    command = [sys.executable, "-m", "tests.engines.kubernetes.keeping", server.url, str(server.token_file)]
    command += [str(tmp_path), pod.key[1], pod.uid]
    for live in range(3):
        for number in range(200):
            pod.logs.write(T + live * NANO + number * 1000, b"%d.%d " % (live, number) + b"x" * 2000)
        keeper = subprocess.Popen(command)
        try:
            until(lambda live=live: len(text_of(tmp_path)) > live * 400_000)  # type: ignore[misc]
        finally:
            keeper.kill()
            keeper.wait()
    pod.end()
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    assert text_of(tmp_path) == pod.logs.text
