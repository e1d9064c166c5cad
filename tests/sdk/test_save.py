"""A checkpoint is whole or not there, and one that could not be reported is found by the next attempt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from swell_sdk import Run, read_environment
from swell_sdk.checkpoints import Checkpoints, Found
from swell_sdk.news import Checkpoint

from .scripts import Script
from .server import Server, serving, wait_until


def write(path: str) -> None:
    Path(path).write_text("whole")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_named_after_attempt_and_epoch(attached: Callable[..., Run], folder: Path) -> None:
    run = attached(EPOCHS_TO_BE_DONE="1")
    for _ in run.epochs():
        assert run.save(write, suffix=".pt") == str(folder / "attempt-3-epoch-1.pt")
    assert (folder / "attempt-3-epoch-1.pt").read_text() == "whole"


def test_while_it_is_written_there_is_no_checkpoint(attached: Callable[..., Run], folder: Path) -> None:
    seen: list[str] = []

    def watch(path: str) -> None:
        write(path)
        seen.extend(names(folder))
        assert Path(path).parent == folder

    attached().save(watch, epochs_done=1)
    assert [name for name in seen if not name.startswith(".partial-")] == []


def test_a_save_that_interrupts_another_takes_nothing_from_it(attached: Callable[..., Run], folder: Path) -> None:
    """On a busy machine a signal's handler saved in the midst of a save, and the one that was interrupted was lost."""
    run = attached()

    def interrupted(path: str) -> None:
        Path(path).write_text("outer")
        run.save(write, epochs_done=1)

    assert run.save(interrupted, epochs_done=1) == str(folder / "attempt-3-epoch-1")
    assert (folder / "attempt-3-epoch-1").read_text() == "outer"
    assert [name for name in names(folder) if name.startswith(".partial-")] == []


def test_in_the_middle_of_an_epoch_that_epoch_is_not_part_of_it(attached: Callable[..., Run], folder: Path) -> None:
    run = attached(EPOCHS_DONE="4", EPOCHS_TO_BE_DONE="5")
    for _ in run.epochs():
        for batch in run.steps(range(2)):
            if batch == 0:
                assert run.save(write) == str(folder / "attempt-3-epoch-4")
        assert run.save(write) == str(folder / "attempt-3-epoch-5")
    assert run.save(write) == str(folder / "attempt-3-epoch-5")


def test_a_steps_loop_that_was_left_is_over(attached: Callable[..., Run], folder: Path) -> None:
    run = attached(EPOCHS_TO_BE_DONE="1")
    for _ in run.epochs():
        for _ in run.steps(range(100)):
            break
        assert run.save(write) == str(folder / "attempt-3-epoch-1")


def test_a_folder_is_a_checkpoint_too_and_never_replaced_in_part(attached: Callable[..., Run], folder: Path) -> None:
    def write_folder(path: str) -> None:
        (Path(path) / "shards").mkdir(parents=True)
        (Path(path) / "shards" / "0").write_text("whole")

    run = attached()
    assert run.save(write_folder, epochs_done=1) == str(folder / "attempt-3-epoch-1")
    assert run.save(write_folder, epochs_done=1) == str(folder / "attempt-3-epoch-1-2")
    assert (folder / "attempt-3-epoch-1-2" / "shards" / "0").read_text() == "whole"


def test_what_the_scripts_write_raises_goes_through_and_nothing_is_left(
    attached: Callable[..., Run], server: Server, folder: Path
) -> None:
    def fail(path: str) -> None:
        Path(path).write_text("ha")
        raise OSError("disk full")

    run = attached()
    with pytest.raises(OSError, match="disk full"):
        run.save(fail, epochs_done=1)
    run.close()
    assert names(folder) == []
    assert server.checkpoints() == []


def test_a_write_that_writes_nothing_is_said_and_not_reported(
    attached: Callable[..., Run], server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = attached()
    assert run.save(lambda path: None, epochs_done=1) is None
    run.close()
    assert (names(folder), server.checkpoints()) == ([], [])


def test_a_process_killed_while_it_writes_leaves_no_checkpoint_and_the_next_attempt_sweeps_up(
    start: Callable[..., Script], server: Server, folder: Path
) -> None:
    script = start("""
    import swell_sdk
    def write(path):
        with open(path, "w") as file:
            file.write("ha")
            file.flush()
            gate("writing")
    swell_sdk.attach().save(write, epochs_done=1)
    """)
    assert script.at_gate() == "writing"
    script.kill()
    assert [name.startswith(".partial-3-") for name in names(folder)] == [True]
    assert server.checkpoints() == []
    run = Run(read_environment(server.environ(SWELL_ATTEMPT="12.4")))
    assert (names(folder), run.checkpoint_path) == ([], None)
    run.close()


def test_the_report_comes_after_the_rename(attached: Callable[..., Run], server: Server) -> None:
    """The server of these tests refuses a checkpoint that is not there."""
    run = attached(EPOCHS_TO_BE_DONE="5")
    for _ in run.epochs():
        run.save(write)
    run.close()
    assert server.refused == []
    assert server.checkpoints()[-1][0] == 5


def test_older_checkpoints_go_only_when_the_server_knows_the_newer(
    attached: Callable[..., Run], server: Server, folder: Path
) -> None:
    (folder / "attempt-2-epoch-1").write_text("of an earlier attempt")
    (folder / "mine.pt").write_text("not ours")
    server.set_mode(503)
    run = attached(EPOCHS_DONE="1", EPOCHS_TO_BE_DONE="4")
    for _ in run.epochs():
        run.save(write)
    kept = [f"attempt-3-epoch-{epoch}" for epoch in (2, 3, 4)]
    assert names(folder) == [".unreported-12.3.json", "attempt-2-epoch-1", *kept, "mine.pt"]
    server.set_mode(200)
    wait_until(
        lambda: names(folder) == ["attempt-3-epoch-3", "attempt-3-epoch-4", "mine.pt"], "older checkpoints to go"
    )


def test_files_of_one_checkpoint_stay_together(attached: Callable[..., Run], folder: Path) -> None:
    run = Run(read_environment({"SWELL_CHECKPOINTS": str(folder)}))
    for epoch in (1, 2, 3):
        run.save(write, epochs_done=epoch, suffix=".model", keep=1)
        run.save(write, epochs_done=epoch, suffix=".optimizer", keep=1)
    assert names(folder) == ["attempt-1-epoch-3.model", "attempt-1-epoch-3.optimizer"]


def test_a_checkpoint_that_was_not_delivered_is_found_by_the_next_attempt(
    start: Callable[..., Script], server: Server, folder: Path
) -> None:
    server.stop()
    script = start("""
    import swell_sdk
    run = swell_sdk.attach()
    for epoch in run.epochs():
        run.save(lambda path: open(path, "w").write("whole"))
        gate(epoch)
    """)
    for number in range(3):
        assert script.at_gate() == str(number)
        if number < 2:
            script.go()
    script.kill()
    note = json.loads((folder / ".unreported-12.3.json").read_text())
    assert (note["epochs_done"], note["path"]) == (3, "attempt-3-epoch-3")

    with serving(folder, attempt="12.4") as again:
        told = read_environment(again.environ(EPOCHS_DONE="1", JOB_RESTARTED="TRUE"))
        rank_0, rank_1 = Run(told), Run(told, rank=1)
        again.wait_report(lambda one: "checkpoint" in one, "it to be reported at last")
        late = Run(told, rank=2)  # it finds what rank 0 found, although that has been reported
        for run in (rank_0, rank_1, late):
            assert (run.epochs_done, run.checkpoint_path) == (3, str(folder / "attempt-3-epoch-3"))
        assert again.checkpoints() == [(3, "attempt-3-epoch-3")]
        rank_0.save(write, epochs_done=4)
        wait_until(lambda: names(folder) == ["attempt-3-epoch-3", "attempt-4-epoch-4"], "the note to go")
        for run in (rank_0, rank_1, late):
            run.close()


@pytest.mark.parametrize("path", ["attempt-3-epoch-2", None])
def test_a_container_that_is_started_again_within_its_attempt_goes_on_where_it_was(
    server: Server, folder: Path, path: str | None
) -> None:
    """A kubelet starts what failed again with EPOCHS_DONE of the attempt's beginning: it began anew."""
    told = read_environment(server.environ(EPOCHS_DONE="0", SWELL_ON_YIELD="wait"))
    first = Run(told)
    if path is None:
        first.durable(2)
    else:
        first.save(write, epochs_done=2)
    wait_until(lambda: ".reported-12.3.json" in names(folder), "the server to know")
    first.close()  # nothing of it goes on when it is started again

    again = Run(told)

    where = None if path is None else str(folder / path)
    assert (again.restarted, again.epochs_done, again.checkpoint_path) == (True, 2, where)
    again.save(write, epochs_done=3)
    wait_until(lambda: server.checkpoints()[-1] == (3, "attempt-3-epoch-3"), "the server to know of the third")
    again.close()
    assert server.refused == []
    later = Run(read_environment({**server.environ(EPOCHS_DONE="3", SWELL_ON_YIELD="wait"), "SWELL_ATTEMPT": "12.4"}))
    assert later.epochs_done == 3
    later.fall_silent()


def test_a_note_without_its_checkpoint_or_of_another_job_counts_for_nothing(server: Server, folder: Path) -> None:
    (folder / ".unreported-12.1.json").write_text(json.dumps({"epochs_done": 7, "path": "gone", "at": 1.0}))
    (folder / ".unreported-12.2.json").write_text('{"epochs_done": 8, "pa')
    (folder / "attempt-9-epoch-9").write_text("x")
    other = {"epochs_done": 9, "path": "attempt-9-epoch-9", "at": 1.0}
    (folder / ".unreported-13.1.json").write_text(json.dumps(other))
    (folder / ".unreported-12.9.json").write_text(json.dumps(other))
    run = Run(read_environment(server.environ(EPOCHS_DONE="2")))
    assert (run.epochs_done, run.checkpoint_path) == (2, None)
    run.close()


def test_a_note_goes_when_its_checkpoint_has_been_delivered(
    attached: Callable[..., Run], server: Server, folder: Path
) -> None:
    server.set_mode(503)
    run = attached()
    run.save(write, epochs_done=1)
    assert ".unreported-12.3.json" in names(folder)
    server.set_mode(200)
    wait_until(lambda: names(folder) == ["attempt-3-epoch-1"], "the note to go")


def test_a_note_is_of_the_latest_checkpoint_although_the_report_of_an_earlier_one_fails_after_it(folder: Path) -> None:
    """A cable was pulled: after ten seconds the report of epoch 6 failed, its note took the place of that of epoch 137,
    and the next attempt did 131 epochs again.
    """
    checkpoints = Checkpoints(str(folder), attempt=3, attempt_id="12.3")
    for epochs in (6, 137):
        path = checkpoints.write(write, epochs_done=epochs, suffix="")
        assert path is not None
        checkpoints.note(Checkpoint(epochs, path.name, at=1.0))
    checkpoints.note(Checkpoint(6, "attempt-3-epoch-6", at=1.0))
    found = Checkpoints(str(folder), attempt=4, attempt_id="12.4").find(6)
    assert found == Found(137, str(folder / "attempt-3-epoch-137"))


def test_what_a_stale_copy_notes_after_the_next_attempt_has_saved_counts_for_nothing(
    server: Server, folder: Path
) -> None:
    """A machine that was suspended wakes up while the job trains elsewhere, and its copy saves once more."""
    for attempt, epochs in ((1, 30), (2, 10), (2, 11)):
        write(str(folder / f"attempt-{attempt}-epoch-{epochs}"))
        note = {"epochs_done": epochs, "path": f"attempt-{attempt}-epoch-{epochs}", "at": 1.0}
        (folder / f".unreported-12.{attempt}.json").write_text(json.dumps(note))
    run = Run(read_environment(server.environ(EPOCHS_DONE="10", SWELL_CHECKPOINT="attempt-2-epoch-10")))
    assert (run.epochs_done, run.checkpoint_path) == (11, str(folder / "attempt-2-epoch-11"))
    run.close()


def test_a_folder_that_cannot_be_used_costs_the_checkpoint_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    run = Run(read_environment({"SWELL_CHECKPOINTS": str(tmp_path / "file")}))
    for _ in run.epochs(total=2):
        assert run.save(write) is None
    assert capsys.readouterr().err.count("cannot use the folder") == 1
