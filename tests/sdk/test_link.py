"""Whatever the server does, training goes on, nothing is said twice, and memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from swell_sdk import Run
from swell_sdk.news import EPOCHS_KEPT_MAX

from .scripts import Script
from .server import Server, serving, wait_until


def train(run: Run, epochs: int) -> None:
    for _ in run.epochs(total=run.epochs_done + epochs):
        for _ in run.steps(range(10)):
            pass
        run.save(lambda path: Path(path).write_text("x"))


def wait_away(server: Server) -> None:
    """Until it has been asked twice in vain."""
    before = server.requests
    server.wait(lambda: server.requests >= before + 2, "it to try again")


@pytest.mark.parametrize("mode", [500, 502, 503, 404, 400, 302, "garbage", "close", "hang"])
def test_whatever_the_server_answers_training_goes_on(
    attached: Callable[..., Run], server: Server, mode: int | str, capfd: pytest.CaptureFixture[str]
) -> None:
    server.set_mode(mode)
    run = attached()
    train(run, 3)
    server.wait(lambda: server.requests, "it to try")
    assert run.epochs_done == 3
    server.set_mode(200)
    server.wait_report(lambda one: one["epochs_done"] == 3, "the newest state")
    run.close()
    assert (server.epochs(), server.steps()) == ([1, 2, 3], 30)
    assert server.checkpoints()[-1] == (3, "attempt-3-epoch-3")
    assert capfd.readouterr().out == ""


def test_a_server_that_went_and_came_back_on_its_address_gets_everything(
    attached: Callable[..., Run], server: Server
) -> None:
    run = attached()
    train(run, 1)
    server.wait_report(lambda one: "checkpoint" in one, "the first checkpoint")
    server.stop()
    train(run, 2)
    server.start()
    server.wait_report(lambda one: one["epochs_done"] == 3, "the rest")
    run.close()
    assert (server.epochs(), server.steps()) == ([1, 2, 3], 30)


def test_after_a_restart_of_the_server_it_still_hears_when_to_stop(
    attached: Callable[..., Run], server: Server
) -> None:
    run = attached()
    server.wait(lambda: server.polls, "it to listen")
    server.stop()
    server.order(stop_after=0)
    server.start()
    server.wait_heard(0)
    assert run.should_yield()


def test_an_answer_that_was_overtaken_does_not_undo_the_order_that_overtook_it(
    attached: Callable[..., Run], server: Server
) -> None:
    """The answer to a report was on its way when the order came; the job forgot the order and trained on."""
    run = attached()
    server.wait(lambda: server.reports, "the first report")
    server.set_slow(True)
    run.note_epoch_begun(0)
    server.wait_report(lambda one: one["begun"] == 1, "a report whose answer is on its way")
    server.order(stop_after=0)
    server.wait_heard(0)
    server.set_slow(False)
    run.close()
    assert run.should_yield()


def test_while_the_server_is_away_states_become_one(attached: Callable[..., Run], server: Server) -> None:
    server.set_mode(503)
    run = attached()
    for epoch in run.epochs(total=150):
        for _ in run.steps(range(2)):
            pass
        run.metric("loss", epoch)
        run.durable(epoch + 1)
    server.set_mode(200)
    run.close()
    full = [one for one in server.reports if "checkpoint" in one]
    assert len(full) == 1, "one report says it all"
    assert [number for number, _ in full[0]["epochs"]] == list(range(1, 151))
    assert (full[0]["steps"][0], full[0]["metrics"]) == (300, {"loss": 149.0})
    assert full[0]["checkpoint"]["epochs_done"] == 150


def test_memory_is_bounded_however_long_the_server_is_away(attached: Callable[..., Run], server: Server) -> None:
    server.stop()
    run = attached()
    for epoch in run.epochs(total=5000):
        run.metric(f"m{epoch}", epoch)
    server.start()
    server.wait(lambda: len(server.epochs()) == EPOCHS_KEPT_MAX, "the epochs that were kept")
    run.close()
    assert server.epochs() == list(range(5000 - EPOCHS_KEPT_MAX + 1, 5001))
    assert server.refused == []


def test_short_epochs_do_not_become_a_flood(attached: Callable[..., Run], server: Server) -> None:
    run = attached()
    train(run, 200)
    server.wait_report(lambda one: one["epochs_done"] == 200, "all of them")
    run.close()
    assert sorted(server.epochs()) == list(range(1, 201))
    assert len(server.reports) < 60, "five a second and a little"


def test_what_is_added_while_a_report_is_on_its_way_is_sent_with_the_next(
    attached: Callable[..., Run], server: Server
) -> None:
    run = attached()
    server.wait(lambda: server.reports, "the first report")
    server.set_mode("hang")
    requests = server.requests
    run.metric("loss", 1)
    train(run, 1)
    server.wait(lambda: server.requests > requests, "a report to be on its way")
    run.metric("loss", 2)
    train(run, 1)
    server.set_mode(200)
    server.wait_report(lambda one: one["epochs_done"] == 2, "the rest")
    run.close()
    assert (server.epochs(), server.steps()) == ([1, 2], 20)
    assert [one["metrics"]["loss"] for one in server.reports if "metrics" in one][-1] == 2


@pytest.mark.parametrize("status", [401, 403, 409])
def test_told_that_it_is_over_it_stops_reporting_and_trains_on(
    attached: Callable[..., Run], server: Server, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server.set_mode(status)
    run = attached()
    wait_until(lambda: run._link is not None and run._link.is_over, "it to hear that")
    requests = server.requests
    train(run, 20)
    assert not run.should_yield()
    run.close()
    assert server.requests <= requests + 1, "the other thread may have had a question under way"
    assert len(list(server.folder.glob("attempt-*"))) == 20, "what is no longer ours to judge is not removed"


def test_a_refused_report_is_dropped_and_the_next_is_sent(
    attached: Callable[..., Run], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    run = attached()
    server.wait(lambda: server.reports, "the first report")
    server.set_mode(422)
    run.metric("loss", 1)
    train(run, 1)
    wait_away(server)
    server.set_mode(200)
    train(run, 1)
    server.wait_report(lambda one: one["epochs_done"] == 2, "the next")
    run.close()
    assert server.checkpoints()[-1] == (2, "attempt-3-epoch-2")


def test_when_the_details_are_refused_the_checkpoint_gets_through(
    attached: Callable[..., Run], server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    run = attached()
    server.wait(lambda: server.reports, "the first report")
    server.dislikes = "metrics"
    run.metric("loss", 1)
    run.save(lambda path: Path(path).write_text("x"), epochs_done=1)
    server.wait_report(lambda one: "checkpoint" in one, "the checkpoint without the rest")
    assert server.refused == ["metrics"]


def test_a_busy_server_is_given_time_and_then_the_newest_state(attached: Callable[..., Run], server: Server) -> None:
    server.set_mode(429)
    run = attached()
    train(run, 2)
    server.wait(lambda: server.requests, "it to try")
    server.set_mode(200)
    server.wait_report(lambda one: one["epochs_done"] == 2, "the newest state")
    assert server.reports[-1]["epochs_done"] == 2


def test_at_the_end_of_the_process_everything_has_been_said(start: Callable[..., Script], server: Server) -> None:
    script = start("""
    import swell_sdk
    run = swell_sdk.attach()
    for epoch in run.epochs(total=3):
        for _ in run.steps(range(5)):
            pass
        run.save(lambda path: open(path, "w").write("x"))
    """)
    assert script.end() == (0, "", "")
    assert (server.epochs(), server.steps(), server.checkpoints()[-1][0]) == ([1, 2, 3], 15, 3)


def test_a_server_that_is_away_delays_the_end_by_seconds_and_says_one_line(tmp_path: Path) -> None:
    text = """
    import swell_sdk, time
    run = swell_sdk.attach()
    for epoch in run.epochs(total=3):
        run.save(lambda path: open(path, "w").write("x"))
    began = time.monotonic()
    run.finish(); run.finish()
    print(time.monotonic() - began < 4)
    """
    with ExitStack() as stack:
        servers = {mode: stack.enter_context(serving(tmp_path / mode)) for mode in ("gone", "hang", "garbage")}
        for mode, server in servers.items():
            server.set_mode(mode)
        servers["gone"].stop()
        scripts = [Script(text, server.environ(), tmp_path) for server in servers.values()]
        for script in scripts:  # side by side: each waits its full time
            code, out, err = script.end()
            assert (code, out) == (0, "True\n")
            assert len(err.splitlines()) <= 1
        assert all((server.folder / ".unreported-12.3.json").exists() for server in servers.values())


def test_it_works_without_stdout_and_stderr(start: Callable[..., Script], server: Server) -> None:
    script = start("""
    import swell_sdk
    sys.stdout = sys.stderr = None
    run = swell_sdk.attach()
    run.metric("loss", "none")
    list(run.epochs(total=2))
    """)
    assert script.end()[0] == 0
    assert server.epochs() == [1, 2]


def test_a_forked_child_says_nothing_and_can_be_ended(start: Callable[..., Script], server: Server) -> None:
    script = start("""
    import multiprocessing, swell_sdk
    def work(run, ready):
        for epoch in run.epochs(total=50):
            run.save(lambda path: open(path, "w").write("child"), suffix=".child")
            run.metric("child", 1)
        ready.set()
        signal.pause()
    run = swell_sdk.attach()
    for epoch in run.epochs(total=1):
        context = multiprocessing.get_context("fork")
        ready = context.Event()
        child = context.Process(target=work, args=(run, ready))
        child.start()
        assert ready.wait(15)
        child.terminate()  # a data loader ends its workers like this
        child.join()
        print(child.exitcode)
    """)
    assert script.end() == (0, f"{-15}\n", "")
    assert server.epochs() == [1]
    assert (server.checkpoints(), any("metrics" in one for one in server.reports)) == ([], False)


def test_a_forked_child_that_attaches_anew_reports(start: Callable[..., Script], server: Server) -> None:
    script = start("""
    import swell_sdk
    run = swell_sdk.attach()
    child = os.fork()
    if child == 0:
        again = swell_sdk.attach()
        assert again is not run
        list(again.epochs(total=2))
        sys.exit()
    os.waitpid(child, 0)
    os._exit(0)
    """)
    assert script.end() == (0, "", "")
    assert server.epochs() == [1, 2]


def test_a_script_may_save_from_its_own_signal_handler(start: Callable[..., Script], server: Server) -> None:
    script = start("""
    import swell_sdk
    run = swell_sdk.attach()
    def save(number, frame):
        run.save(lambda path: open(path, "w").write("x"), epochs_done=0)
        run.metric("signals", 1)
        signal.setitimer(signal.ITIMER_REAL, 0.002)  # not before: on a slow disk it would never come back
    signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    for epoch in run.epochs(total=300):
        run.metric("loss", epoch)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    """)
    assert script.end() == (0, "", "")
    assert server.reports[-1]["epochs_done"] == 300
