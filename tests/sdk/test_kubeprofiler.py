"""Scripts written for KubeProfiler run unchanged, and what they saved is counted only when they have saved it."""

from __future__ import annotations

import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kubernetesdlprofile.kubeprofiler import find_checkpoint

from .scripts import Script
from .server import Server

ATTRIBUTES = (
    "JOBID PROFILE_EACH RANK NODE_LIST NUM_GPUS NUM_NODES RESTARTED BATCH_SIZE EPOCHS EPOCHS_DONE TRAINING_SET_SIZE "
    "LOCAL_RANK epoch iterationPerEpoch maxIterations iterations mean_iteration_duration has_to_stop root_dir ckpt_path"
)

SHOW = f"""
from kubernetesdlprofile import kubeprofiler
profiler = kubeprofiler.KubeProfiler(job_manager_hostname="10.0.0.1", db_hostname="10.0.0.2")
print([getattr(profiler, name) for name in {ATTRIBUTES!r}.split()])
"""

#: The shape of the original's example: the save comes after `end_epoch`.
PLAIN = """
from kubernetesdlprofile import kubeprofiler
profiler = kubeprofiler.KubeProfiler()
for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS):
    profiler.start_epoch()
    for batch in range(5):
        profiler.measure()
    profiler.end_epoch()
    gate(epoch, "ended")
    open(os.path.join(profiler.root_dir, "checkpoint"), "w").write(str(epoch + 1))
    gate(epoch, "saved")
profiler.end()
print("finished", flush=True)
"""

#: Callbacks of a framework: no `start_epoch`, no `end`.
CALLBACKS = """
from kubernetesdlprofile.kubeprofiler import KubeProfiler
profiler = KubeProfiler()
for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS):
    for batch in range(5):
        profiler.measure()
    profiler.end_epoch()
    gate(epoch)
print("finished", flush=True)
"""


def go_on(script: Script, *gates: str) -> None:
    for gate in gates:
        assert script.at_gate() == gate
        script.go()


def durable(server: Server) -> list[int]:
    return [epochs_done for epochs_done, path in server.checkpoints() if path is None]


def test_every_attribute_has_its_value(start: Callable[..., Script], folder: Path) -> None:
    told = {
        "JOB_UUID": "u-1",
        "HEARTBEAT_FREQ": "10",
        "NODE_RANK": "0",
        "NODELIST": "a,b",
        "NUM_GPUS": "2",
        "NUM_NODES": "2",
        "JOB_RESTARTED": "TRUE",
        "BATCH_SIZE": "8",
        "EPOCHS_TO_BE_DONE": "9",
        "EPOCHS_DONE": "4",
        "TRAINING_SET_SIZE": "1000",
        "LOCAL_RANK": "0",
    }
    values = ["u-1", 10, 0, "a,b", 2, 2, True, 8, 9, 4, 1000, 0, 4, 31, 279, 0, 0.0, False]
    code, out, err = start(SHOW, **told).end()
    assert (code, out, err) == (0, f"{[*values, str(folder), str(folder / 'tf_ckpt')]}\n", "")


def test_outside_the_scheduler_every_attribute_has_a_default(tmp_path: Path) -> None:
    values = ["", 0, 0, "", 1, 1, False, 1, 1, 0, 0, -1, 0, 0, 0, 0, 0.0, False, "snapshots", None]
    assert Script(SHOW, {}, tmp_path).end() == (0, f"{values}\n", "")
    assert (tmp_path / "snapshots").is_dir()


def test_outside_the_scheduler_a_script_trains(tmp_path: Path) -> None:
    script = Script(PLAIN, {"EPOCHS_TO_BE_DONE": "2", "JOB_UUID": "u-1"}, tmp_path)
    go_on(script, "0 ended", "0 saved", "1 ended", "1 saved")
    assert script.end() == (0, "finished\n", "")
    assert (tmp_path / "snapshots" / "u-1" / "checkpoint").read_text() == "2"


def test_a_missing_folder_is_made_also_for_a_restarted_job(start: Callable[..., Script], folder: Path) -> None:
    told = {"JOB_RESTARTED": "TRUE", "SWELL_CHECKPOINTS": str(folder / "new")}
    assert start(SHOW, **told).end()[0] == 0
    assert (folder / "new").is_dir()


def test_snapshots_go_where_their_user_wants_them_a_folder_for_each_job(
    start: Callable[..., Script], folder: Path
) -> None:
    told = {"JOB_UUID": "u-1", "SWELL_SNAPSHOTS_DIR": str(folder / "mine"), "SWELL_CHECKPOINTS": str(folder / "ours")}
    code, out, _ = start(SHOW, **told).end()
    assert (code, f"'{folder}/mine/u-1'" in out) == (0, True), out
    assert [(folder / name).exists() for name in ("mine/u-1", "ours")] == [True, False]


def test_steps_are_counted_and_their_mean_is_kept(start: Callable[..., Script], server: Server) -> None:
    script = start("""
    from kubernetesdlprofile import kubeprofiler
    profiler = kubeprofiler.KubeProfiler()
    for epoch in range(2):
        profiler.start_epoch()
        for batch in range(5):
            profiler.measure()
        profiler.end_epoch()
    print(profiler.iterations, 0 < profiler.mean_iteration_duration < 1, profiler.epoch)
    """)
    assert script.end() == (0, "9 True 2\n", "")
    assert server.steps() == 8, "the first step of an epoch has no step before it"
    assert server.epochs() == [1, 2]


def test_an_epoch_is_durable_only_when_the_script_has_come_past_its_save(
    start: Callable[..., Script], server: Server
) -> None:
    script = start(PLAIN, EPOCHS_TO_BE_DONE="3")
    assert script.at_gate() == "0 ended"
    server.wait_report(lambda one: one["epochs_done"] == 1, "the first epoch")
    assert durable(server) == [], "not yet: the save comes now"
    script.go()
    assert script.at_gate() == "0 saved"
    script.go()
    assert script.at_gate() == "1 ended"
    server.wait_report(lambda one: one["epochs_done"] == 2, "the second epoch")
    assert durable(server) == [1]
    script.go()
    go_on(script, "1 saved", "2 ended", "2 saved")
    assert script.end() == (0, "finished\n", "")
    assert durable(server)[-1] == 3


def test_a_script_that_fails_between_epoch_and_save_has_not_saved(start: Callable[..., Script], server: Server) -> None:
    for end in ("raise RuntimeError", "sys.exit(3)", "sys.exit('no')"):
        script = start(f"""
        from kubernetesdlprofile import kubeprofiler
        profiler = kubeprofiler.KubeProfiler()
        profiler.measure()
        profiler.end_epoch()
        {end}
        """)
        assert script.end()[0] != 0
        assert durable(server) == []


@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(0)", "raise SystemExit"])
def test_the_clean_end_of_a_script_is_past_its_save(start: Callable[..., Script], server: Server, end: str) -> None:
    script = start(f"""
    from kubernetesdlprofile import kubeprofiler
    profiler = kubeprofiler.KubeProfiler()
    profiler.measure()
    profiler.end_epoch()
    {end}
    """)
    assert script.end()[0] == 0
    assert durable(server) == [1]


def test_asked_to_stop_it_ends_with_0_at_the_first_step_of_the_next_epoch(
    start: Callable[..., Script], server: Server
) -> None:
    script = start(PLAIN, EPOCHS_TO_BE_DONE="9")
    go_on(script, "0 ended", "0 saved")
    assert script.at_gate() == "1 ended"
    server.order(stop_after=2)
    server.wait_heard(2)
    script.go()
    go_on(script, "1 saved")
    assert script.end() == (0, "", "")
    last = server.reports[-1]
    assert (last["yielding"], last["epochs_done"], last["begun"]) == (True, 2, 2)
    assert durable(server)[-1] == 2
    assert server.steps() == 8


def test_without_start_epoch_it_stops_at_the_first_step_after_an_epoch(
    start: Callable[..., Script], server: Server
) -> None:
    script = start(CALLBACKS, EPOCHS_TO_BE_DONE="9")
    assert script.at_gate() == "0"
    server.order(stop_after=1)
    server.wait_heard(1)
    script.go()
    assert script.end() == (0, "", "")
    assert server.reports[-1]["yielding"] is True
    assert durable(server)[-1] == 1


def test_before_its_last_epoch_it_does_not_stop_any_more(start: Callable[..., Script], server: Server) -> None:
    script = start(CALLBACKS, EPOCHS_TO_BE_DONE="2")
    assert script.at_gate() == "0"
    server.order(stop_after=1)
    server.wait_heard(1)
    script.go()
    go_on(script, "1")
    assert script.end() == (0, "finished\n", "")
    assert durable(server)[-1] == 2
    assert not server.reports[-1].get("yielding")


def test_sigterm_counts_as_asked_to_stop(start: Callable[..., Script], server: Server) -> None:
    script = start(PLAIN, EPOCHS_TO_BE_DONE="9")
    assert script.at_gate() == "0 ended"
    script.signal(signal.SIGTERM)
    script.go()
    go_on(script, "0 saved")
    assert script.end() == (0, "", "")
    assert (durable(server)[-1], server.reports[-1]["yielding"]) == (1, True)


def test_what_happened_while_the_server_was_away_is_not_lost(start: Callable[..., Script], server: Server) -> None:
    server.stop()
    script = start(PLAIN, EPOCHS_TO_BE_DONE="3", HEARTBEAT_FREQ="1")
    go_on(script, "0 ended", "0 saved", "1 ended", "1 saved", "2 ended")
    server.start()
    go_on(script, "2 saved")
    assert script.end()[:2] == (0, "finished\n")
    assert (server.epochs(), server.steps(), durable(server)[-1]) == ([1, 2, 3], 12, 3)


@pytest.mark.parametrize(
    "told",
    [
        {"NODE_RANK": "1", "LOCAL_RANK": "0", "RANK": "2"},
        {"NODE_RANK": "1"},
        {"NODE_RANK": "0", "LOCAL_RANK": "1"},
        {"NODE_RANK": "0", "LOCAL_RANK": "0", "RANK": "1"},
    ],
)
def test_only_one_process_of_a_job_reports(start: Callable[..., Script], server: Server, told: dict[str, str]) -> None:
    script = start(CALLBACKS, EPOCHS_TO_BE_DONE="9", **told)
    assert script.at_gate() == "0"
    server.wait(lambda: server.polls, "it to listen")
    rank = server.polls[-1]["rank"]
    assert rank != "0"
    server.order(stop_after=1)
    server.wait_heard(1, int(rank))
    script.go()
    assert script.end() == (0, "", ""), "but every one stops"
    assert server.reports == []


def write_zip(path: Path, *, age: int, is_whole: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights", "1234567890" * 100)
    if not is_whole:
        path.write_bytes(path.read_bytes()[:500])
    os.utime(path, (1000 - age, 1000 - age))


def test_the_newest_whole_checkpoint_of_lightnings_newest_version_is_found(tmp_path: Path) -> None:
    logs = tmp_path / "lightning_logs"
    write_zip(logs / "version_2" / "checkpoints" / "epoch=7.ckpt", age=0)
    write_zip(logs / "version_10" / "checkpoints" / "epoch=8.ckpt", age=30)
    write_zip(logs / "version_10" / "checkpoints" / "epoch=9.ckpt", age=20)
    write_zip(logs / "version_10" / "checkpoints" / "epoch=10.ckpt", age=10, is_whole=False)
    (logs / "version_11" / "checkpoints").mkdir(parents=True)
    (logs / "version_11" / "checkpoints" / "epoch=11.ckpt").touch()
    assert find_checkpoint(tmp_path) == str(logs / "version_10" / "checkpoints" / "epoch=9.ckpt")


def test_tensorflows_folder_is_found_under_either_name(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path) == str(tmp_path / "tf_ckpt")
    (tmp_path / "tf_ckpts").mkdir()
    assert find_checkpoint(tmp_path) == str(tmp_path / "tf_ckpts")
    (tmp_path / "tf_ckpt").mkdir()
    os.utime(tmp_path / "tf_ckpts", (1, 1))
    assert find_checkpoint(tmp_path) == str(tmp_path / "tf_ckpt")
