"""A job whose exit code would be taken for a verdict says that it is ready, and waits to be ended from outside."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from .scripts import Script
from .server import Server

LOOP = """
import swell_sdk
run = swell_sdk.attach()
try:
    for epoch in run.epochs():
        run.save(lambda path: open(path, "w").write(str(epoch + 1)))
        gate(epoch)
finally:
    print("cleaned up", flush=True)
"""

PROFILED = """
from kubernetesdlprofile.kubeprofiler import KubeProfiler
profiler = KubeProfiler()
for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS):
    profiler.start_epoch()
    profiler.measure()
    profiler.measure()
    profiler.end_epoch()
    gate(epoch)
"""


@pytest.fixture
def asked(start: Callable[..., Script], server: Server) -> Callable[..., Script]:
    """A script in its first epoch of nine, that knows that it is to stop after it."""

    def make(text: str = LOOP, rank: int = 0, **environ: str) -> Script:
        told = {"SWELL_ON_YIELD": "wait", "EPOCHS_TO_BE_DONE": "9", "RANK": str(rank), "WORLD_SIZE": "2"}
        script = start(text, **{**told, **environ})
        assert script.at_gate() == "0"
        server.order(stop_after=1)
        server.wait_heard(1, rank)
        return script

    return make


def lives_on(server: Server, rank: int = 0) -> None:
    """It goes on asking what it should do: twice within a second, had the server only this to say."""
    server.order(stop_after=1, yield_now=True)
    known = len(server.polls)
    of_rank = str(rank)
    server.wait(lambda: [poll["rank"] for poll in server.polls[known:]].count(of_rank) >= 3, "it to be alive")


def is_ready(report: dict[str, object]) -> bool:
    return report.get("ready_to_stop") is True


def test_asked_to_stop_it_says_that_it_is_ready_and_waits_for_sigterm(
    asked: Callable[..., Script], server: Server
) -> None:
    script = asked()
    script.go()
    ready = server.wait_report(is_ready, "it to be ready")
    assert (server.checkpoints(), ready["yielding"], ready["epochs_done"]) == ([(1, "attempt-3-epoch-1")], True, 1)
    assert "checkpoint" not in ready, "the server knew of it before"
    lives_on(server)
    script.signal(signal.SIGTERM)
    assert script.end() == (75, "cleaned up\n", "")


def test_other_ranks_wait_too_and_leave_it_to_rank_0_to_say_so(asked: Callable[..., Script], server: Server) -> None:
    script = asked(rank=1)
    script.go()
    lives_on(server, rank=1)
    script.signal(signal.SIGTERM)
    assert script.end() == (75, "cleaned up\n", "")
    assert server.reports == []


def test_a_script_for_kubeprofiler_waits_and_does_not_look_as_if_it_was_done(
    asked: Callable[..., Script], server: Server
) -> None:
    script = asked(PROFILED)
    script.go()
    server.wait_report(is_ready, "it to be ready")
    assert server.checkpoints() == [(1, None)]
    lives_on(server)
    script.signal(signal.SIGTERM)
    assert script.end() == (75, "", "")


def test_a_handler_of_the_scripts_own_is_called_and_the_wait_is_over(
    asked: Callable[..., Script], server: Server
) -> None:
    script = asked("signal.signal(signal.SIGTERM, lambda *_: print('mine', flush=True))\n" + LOOP)
    script.go()
    server.wait_report(is_ready, "it to be ready")
    script.signal(signal.SIGTERM)
    assert script.end() == (75, "mine\ncleaned up\n", "")


def test_ended_by_sigterm_alone_it_does_not_wait(start: Callable[..., Script], server: Server) -> None:
    """Somebody empties its node: they have asked for its end already, and will not do so again."""
    script = start(LOOP, SWELL_ON_YIELD="wait", EPOCHS_TO_BE_DONE="9")
    assert script.at_gate() == "0"
    script.signal(signal.SIGTERM)
    script.go()
    assert script.end() == (75, "cleaned up\n", "")
    assert server.checkpoints() == [(1, "attempt-3-epoch-1")]


def test_one_that_has_done_all_its_epochs_ends_as_ever(asked: Callable[..., Script], server: Server) -> None:
    script = asked(EPOCHS_TO_BE_DONE="1")
    script.go()
    assert script.end() == (0, "cleaned up\n", "")
    assert not any(is_ready(report) for report in server.reports)


def test_a_server_that_was_away_is_told_when_it_is_back(asked: Callable[..., Script], server: Server) -> None:
    script = asked()
    server.set_mode(503)
    known = server.requests
    script.go()
    server.wait(lambda: server.requests >= known + 5, "it to try in vain")
    server.set_mode(200)
    server.wait_report(is_ready, "it to be ready")
    script.signal(signal.SIGTERM)
    assert script.end()[:2] == (75, "cleaned up\n")
    assert (server.checkpoints(), server.refused) == ([(1, "attempt-3-epoch-1")], [])


def test_a_server_of_before_that_does_not_know_the_word_sees_it_end_with_75(
    asked: Callable[..., Script], server: Server
) -> None:
    server.dislikes = "ready_to_stop"
    script = asked()
    script.go()
    code, out, _ = script.end()
    assert (code, out, server.refused) == (75, "cleaned up\n", ["ready_to_stop"])
    assert (server.checkpoints(), server.reports[-1]["yielding"]) == ([(1, "attempt-3-epoch-1")], True)


def test_an_attempt_that_is_over_waits_for_nobody(asked: Callable[..., Script], server: Server) -> None:
    script = asked()
    server.set_mode(409)
    script.go()
    code, out, err = script.end()
    assert (code, out, "this attempt no longer reports" in err) == (75, "cleaned up\n", True)


def test_the_wait_has_an_end(start: Callable[..., Script]) -> None:
    text = """
    import swell_sdk
    from swell_sdk.waiting import wait_to_be_stopped
    run = swell_sdk.attach()
    wait_to_be_stopped(run._link, run.news, run.orders, seconds=0.0)
    print("waited")
    """
    assert start(text).end() == (0, "waited\n", "")
