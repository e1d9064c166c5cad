"""What a training script is given, when it stops, and with which exit code."""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import swell_sdk
from swell_sdk import Run, read_environment

from .scripts import Script
from .server import Server

LOOP = """
import swell_sdk
run = swell_sdk.attach()
try:
    for epoch in run.epochs():
        for batch in run.steps(range(4)):
            pass
        run.save(lambda path: open(path, "w").write(str(epoch + 1)))
        gate(epoch)
finally:
    print("cleaned up", flush=True)
print("finished", flush=True)
"""


def test_a_first_attempt_starts_at_the_beginning(attached: Callable[..., Run]) -> None:
    run = attached(EPOCHS_TO_BE_DONE="3", SWELL_WIDTH="2", WORLD_SIZE="2")
    assert (run.restarted, run.checkpoint_path, run.epochs_done, run.epochs_total) == (False, None, 0, 3)
    assert (run.rank, run.world_size, run.width) == (0, 2, 2)
    assert list(run.epochs()) == [0, 1, 2]


def test_a_restarted_job_goes_on_where_its_checkpoint_is(attached: Callable[..., Run], folder: Path) -> None:
    (folder / "attempt-2-epoch-5").write_text("five")
    told = {"JOB_RESTARTED": "TRUE", "EPOCHS_DONE": "5", "SWELL_CHECKPOINT": str(folder / "attempt-2-epoch-5")}
    run = attached(EPOCHS_TO_BE_DONE="7", **told)
    assert (run.restarted, run.checkpoint_path) == (True, str(folder / "attempt-2-epoch-5"))
    assert list(run.epochs()) == [5, 6]


def test_a_checkpoint_that_is_not_there_is_not_offered(
    attached: Callable[..., Run], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = attached(JOB_RESTARTED="TRUE", EPOCHS_DONE="5", SWELL_CHECKPOINT=str(folder / "gone"))
    assert run.checkpoint_path is None


def test_epochs_given_in_the_script_count_before_those_of_the_job(attached: Callable[..., Run]) -> None:
    assert list(attached(EPOCHS_TO_BE_DONE="9").epochs(total=2)) == [0, 1]


def test_without_a_number_of_epochs_the_loop_is_the_scripts_to_leave(attached: Callable[..., Run]) -> None:
    seen = []
    run = attached()
    for epoch in run.epochs():
        seen.append(epoch)
        if epoch == 4:
            break
    assert seen == [0, 1, 2, 3, 4]
    assert run.epochs_done == 4, "an epoch that was left is not counted"


def test_the_server_hears_of_epochs_steps_and_checkpoints(attached: Callable[..., Run], server: Server) -> None:
    run = attached(EPOCHS_TO_BE_DONE="2")
    for epoch in run.epochs():
        for _ in run.steps(range(10)):
            pass
        run.metrics(loss=1.0 / (epoch + 1), accuracy=0.5)
        run.report_memory(1234)
        run.save(lambda path: Path(path).write_text("x"))
    run.close()
    last = server.reports[-1]
    assert (last["rank"], last["begun"], last["epochs_done"], last["epochs_total"]) == (0, 2, 2, 2)
    assert server.epochs() == [1, 2]
    assert server.steps() == 20
    assert server.checkpoints()[-1] == (2, "attempt-3-epoch-2")
    assert [one["metrics"]["loss"] for one in server.reports if "metrics" in one][-1] == 0.5
    assert any(one.get("memory_mib") == 1234 for one in server.reports)
    assert not any(one.get("yielding") for one in server.reports)
    assert server.refused == []


def test_begun_is_told_while_the_epoch_runs(attached: Callable[..., Run], server: Server) -> None:
    for epoch in attached(EPOCHS_TO_BE_DONE="2").epochs():
        server.wait_report(lambda one, begun=epoch + 1: one["begun"] == begun, f"epoch {epoch} to have begun")
    assert [one["begun"] for one in server.reports] == sorted(one["begun"] for one in server.reports)


def test_steps_hand_everything_through_and_keep_the_length(attached: Callable[..., Run]) -> None:
    run = attached()
    assert list(run.steps("abc")) == ["a", "b", "c"]
    assert len(run.steps("abc")) == 3  # type: ignore[arg-type]
    assert list(run.steps(iter("abc"))) == ["a", "b", "c"]
    assert run.news.steps == 6


def test_what_the_loader_raises_is_the_scripts_own(attached: Callable[..., Run]) -> None:
    with pytest.raises(ZeroDivisionError):
        list(attached().steps(1 // (1 - one) for one in range(3)))


def test_metrics_that_are_not_finite_are_not_sent(attached: Callable[..., Run], server: Server) -> None:
    run = attached()
    run.metrics(loss=math.nan, norm=math.inf, fine=1)
    run.metric("rate", -math.inf)
    run.metric("words", "many")
    run.report_memory(math.nan)
    run.close()
    assert [one["metrics"] for one in server.reports if "metrics" in one] == [{"fine": 1.0}]
    assert server.refused == []


def test_only_the_newest_50_metrics_are_sent(attached: Callable[..., Run], server: Server) -> None:
    server.stop()
    run = attached()
    for number in range(80):
        run.metric(f"m{number}", number)
    run.metric("m30", -1)
    server.start()
    run.close()
    sent = {name: value for one in server.reports for name, value in one.get("metrics", {}).items()}
    assert sent == {**{f"m{number}": number for number in range(31, 80)}, "m30": -1}


def test_asked_to_stop_after_an_epoch_it_saves_reports_and_ends_with_75(
    start: Callable[..., Script], server: Server
) -> None:
    script = start(LOOP, EPOCHS_TO_BE_DONE="9")
    assert script.at_gate() == "0"
    script.go()
    assert script.at_gate() == "1"
    server.order(stop_after=3)
    server.wait_heard(3)
    script.go()
    assert script.at_gate() == "2"
    script.go()
    assert script.end() == (75, "cleaned up\n", "")
    assert server.reports[-1]["yielding"] is True
    assert server.reports[-1]["epochs_done"] == 3
    assert server.checkpoints()[-1] == (3, "attempt-3-epoch-3")
    assert server.epochs() == [1, 2, 3]


def test_a_job_that_has_done_everything_ends_as_ever_also_when_asked_to_stop(
    start: Callable[..., Script], server: Server
) -> None:
    script = start(LOOP, EPOCHS_TO_BE_DONE="1")
    assert script.at_gate() == "0"
    server.order(stop_after=1)
    server.wait_heard(1)
    script.go()
    assert script.end() == (0, "cleaned up\nfinished\n", "")
    assert not server.reports[-1].get("yielding")
    assert server.reports[-1]["epochs_done"] == 1


def test_an_order_that_is_taken_back_is_forgotten(attached: Callable[..., Run], server: Server) -> None:
    run = attached(EPOCHS_TO_BE_DONE="2")
    server.order(stop_after=1)
    server.wait_heard(1)
    polls = len(server.polls)
    server.order(stop_after=None)
    server.wait(lambda: any(one["known"] == "" for one in server.polls[polls:]), "it to ask anew")
    assert list(run.epochs()) == [0, 1]


def test_yield_now_ends_it_after_the_running_epoch(start: Callable[..., Script], server: Server) -> None:
    script = start(LOOP, EPOCHS_TO_BE_DONE="9")
    assert script.at_gate() == "0"
    server.order_yield()
    script.go()
    assert script.end()[0] == 75
    assert server.checkpoints()[-1] == (1, "attempt-3-epoch-1")


def test_sigterm_ends_it_after_the_running_epoch(start: Callable[..., Script], server: Server) -> None:
    script = start(LOOP, EPOCHS_TO_BE_DONE="9")
    assert script.at_gate() == "0"
    script.signal(signal.SIGTERM)
    script.go()
    assert script.end() == (75, "cleaned up\n", "")
    assert server.reports[-1]["yielding"] is True


def test_sigterm_is_seen_in_the_middle_of_an_epoch(start: Callable[..., Script], server: Server) -> None:
    text = """
    import swell_sdk
    run = swell_sdk.attach()
    for epoch in run.epochs():
        for batch in run.steps(range(4)):
            if batch == 2:
                assert not run.should_yield()
                os.kill(os.getpid(), signal.SIGTERM)
                assert run.should_yield()
                run.save(lambda path: open(path, "w").write("middle"))
                run.leave()
    """
    script = start(text, EPOCHS_DONE="5")
    assert script.end() == (75, "", "")
    assert server.checkpoints() == [(5, "attempt-3-epoch-5")], "in the middle of the sixth epoch five are done"
    assert server.reports[-1]["yielding"] is True
    assert server.reports[-1]["epochs_done"] == 5


def test_sigterm_before_the_first_epoch_ends_the_process_as_ever(start: Callable[..., Script]) -> None:
    script = start("import swell_sdk; run = swell_sdk.attach(); gate('loading')")
    assert script.at_gate() == "loading"
    script.signal(signal.SIGTERM)
    assert script.end()[0] == -signal.SIGTERM


def test_a_handler_of_the_scripts_own_is_left_in_place(start: Callable[..., Script]) -> None:
    text = """
    import swell_sdk
    mine = lambda number, frame: print("mine")
    signal.signal(signal.SIGTERM, mine)
    run = swell_sdk.attach()
    assert list(run.epochs(total=1)) == [0] and not run.should_yield()
    print(signal.getsignal(signal.SIGTERM) is mine)
    """
    assert start(text).end() == (0, "True\n", "")


def test_without_a_checkpoint_it_ends_with_75_all_the_same(start: Callable[..., Script], server: Server) -> None:
    script = start("import swell_sdk\nfor epoch in swell_sdk.attach().epochs(): gate(epoch)")
    assert script.at_gate() == "0"
    script.signal(signal.SIGTERM)
    script.go()
    assert script.end()[0] == 75
    assert server.checkpoints() == []
    assert (server.reports[-1]["epochs_done"], server.reports[-1]["yielding"]) == (1, True)


def test_a_stop_that_was_asked_before_the_first_epoch_costs_none(start: Callable[..., Script], server: Server) -> None:
    script = start("import swell_sdk; run = swell_sdk.attach(); gate('loading'); print(list(run.epochs(5)))")
    assert script.at_gate() == "loading"
    server.order_yield()
    script.go()
    assert script.end() == (75, "", "")


def test_ranks_stop_after_the_same_epoch_without_talking(start: Callable[..., Script], server: Server) -> None:
    ranks = [start(LOOP, EPOCHS_TO_BE_DONE="9", RANK=str(rank), WORLD_SIZE="3") for rank in range(3)]
    for _ in range(2):
        for script in ranks:
            script.at_gate()
            script.go()
    for rank, script in enumerate(ranks):  # rank 2 is ahead of the others
        assert script.at_gate() == "2"
        if rank == 2:
            script.go()
            assert script.at_gate() == "3"
    server.wait(lambda: any(one["rank"] == "2" and one["begun"] == "4" for one in server.polls), "rank 2 to be ahead")
    server.order(stop_after=5)
    for rank in range(3):
        server.wait_heard(5, rank)
    last = [[] for _ in ranks]
    for rank, script in enumerate(ranks):
        script.go()
        while (said := script.at_gate()) != "cleaned up":
            last[rank].append(said)
            script.go()
    assert [said[-1] for said in last] == ["4", "4", "4"]
    assert [script.end()[0] for script in ranks] == [75, 75, 75]
    assert {one["rank"] for one in server.reports} == {0}, "only rank 0 reports figures"
    assert sorted(path.name for path in server.folder.iterdir()) == ["attempt-3-epoch-4", "attempt-3-epoch-5"]


def test_other_ranks_neither_write_nor_report(attached: Callable[..., Run], server: Server) -> None:
    run = attached(RANK="1", WORLD_SIZE="2", EPOCHS_TO_BE_DONE="1")
    for _ in run.epochs():
        assert run.save(lambda path: pytest.fail("written")) is None
    server.wait(lambda: any(one["begun"] == "1" for one in server.polls), "rank 1 to say what it has begun")
    run.close()
    assert server.reports == []


def test_a_child_of_a_launcher_that_only_sets_local_rank_is_not_rank_0(attached: Callable[..., Run]) -> None:
    assert attached(RANK="0", LOCAL_RANK="1").rank == 1
    assert attached(RANK="0", LOCAL_RANK="0").rank == 0


def test_outside_swell_the_same_script_runs_and_nothing_is_sent(server: Server, tmp_path: Path) -> None:
    script = Script(LOOP, {"EPOCHS_TO_BE_DONE": "3"}, tmp_path)
    for number in range(3):
        assert script.at_gate() == str(number)
        script.go()
    assert script.end() == (0, "cleaned up\nfinished\n", "")
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "attempt-1-epoch-2",
        "attempt-1-epoch-3",
    ]
    assert (server.requests, server.reports) == (0, [])


def test_outside_swell_sigterm_means_what_it_always_means(tmp_path: Path) -> None:
    script = Script("import swell_sdk\nfor epoch in swell_sdk.attach().epochs(9): gate(epoch)", {}, tmp_path)
    assert script.at_gate() == "0"
    script.signal(signal.SIGTERM)
    assert script.end()[0] == -signal.SIGTERM


def test_outside_swell_epochs_without_a_number_are_refused_before_the_first_instead_of_going_on_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(read_environment({}))
    with pytest.raises(ValueError, match=r"^run\.epochs\(\) has no number of epochs, and outside Swell none is "):
        run.epochs()
    assert list(run.epochs(2)) == [0, 1]
    assert list(Run(read_environment({"EPOCHS_TO_BE_DONE": "1"})).epochs()) == [0]


def test_under_swell_epochs_without_a_number_go_on_until_somebody_ends_the_job(attached: Callable[..., Run]) -> None:
    assert [epoch for epoch, _ in zip(attached(SWELL_JOB_ID="7").epochs(), range(3), strict=False)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"SWELL_TASK_COUNT": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}, 75),
        ({"SWELL_TASK_COUNT": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}, 0),
        ({"SWELL_TASK_COUNT": "2", "LOCAL_RANK": "1", "RANK": "3", "TORCHELASTIC_RUN_ID": "none"}, 0),
        ({"SWELL_TASK_COUNT": "2", "LOCAL_RANK": "0", "RANK": "2", "TORCHELASTIC_RUN_ID": "none"}, 75),
        ({"SWELL_TASK_COUNT": "2", "LOCAL_RANK": "1", "RANK": "1"}, 75),
    ],
)
def test_of_the_ranks_of_one_task_the_first_says_that_it_yields_and_no_other_ends_as_if_it_had_failed(
    attached: Callable[..., Run], told: dict[str, str], code: int
) -> None:
    """torchrun ends all others as soon as one fails, and Lightning kills the first: it may still be saving."""
    with pytest.raises(SystemExit) as ended:
        attached(**told).leave()
    assert ended.value.code == code


def test_attached_twice_it_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert swell_sdk.attach() is swell_sdk.attach()


def test_an_address_that_is_none_is_said_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"SWELL_URL": "nowhere", "SWELL_TOKEN": "t", "SWELL_ATTEMPT": "1.1", "SWELL_CHECKPOINTS": str(tmp_path)}
    run = Run(read_environment(told))
    assert list(run.epochs(total=2)) == [0, 1]
    assert "SWELL_URL is 'nowhere'" in capsys.readouterr().err


def test_it_leaves_the_scripts_random_numbers_alone(attached: Callable[..., Run], server: Server) -> None:
    server.set_mode(503)
    random.seed(1)
    expected = random.random()
    random.seed(1)
    attached()
    server.wait(lambda: server.requests > 4, "it to have drawn how long to wait")
    assert random.random() == expected
