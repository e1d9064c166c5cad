"""The callbacks for frameworks, against stand-ins for the frameworks (tests/sdk/standins), in processes of their own.

The stand-ins are modules of the same name on the path, at the outermost seam: they stop where a test wants it. Whole
jobs are run with the real frameworks, Lightning with nothing else, by `make soak` (tests/e2e/frameworks.py).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from .scripts import SDK, Script
from .server import Server

STANDINS = Path(__file__).parent / "standins"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PATH = {"PYTHONPATH": f"{SDK}:{STANDINS}"}

KERAS = """
import keras, swell_sdk
from swell_sdk.keras import SwellCallback
run = swell_sdk.attach()
model = keras.Model(lambda epoch: gate(epoch))
model.fit(epochs=run.epochs_total, initial_epoch=run.epochs_done, callbacks=[SwellCallback()])
print("finished", model.saves, flush=True)
"""

TRAINER = """
import swell_sdk
from transformers import Trainer, TrainingArguments
from swell_sdk.huggingface import SwellCallback
run = swell_sdk.attach()
args = TrainingArguments(output_dir=run.folder, num_train_epochs=run.epochs_total, saves="no" not in os.environ)
args.process_index, args.world_size = run.rank, run.world_size
Trainer(args, [SwellCallback()], lambda where: gate(where)).train(run.checkpoint_path)
print("finished", flush=True)
"""


def pass_gates(script: Script, last: str) -> None:
    """Up to that gate, and wait there."""
    while (said := script.at_gate()) != last:
        assert said, f"it ended before it came to {last!r}: {script.end()}"
        script.go()


def finish(script: Script) -> tuple[int, list[str], str]:
    """Through all gates that are left."""
    said = []
    script.go()
    while line := script.at_gate():
        said.append(line)
        if line.startswith("finished"):
            break
        script.go()
    code, _, err = script.end()
    return code, said, err


def test_a_callback_reports_saves_stops_and_goes_on(start: Callable[..., Script], server: Server, folder: Path) -> None:
    text, suffix = KERAS, ".keras"
    script = start(text, EPOCHS_TO_BE_DONE="5", **PATH)
    pass_gates(script, "1")
    server.order(stop_after=2)
    server.wait_heard(2)
    assert finish(script) == (75, [], "")
    assert server.checkpoints()[-1] == (2, f"attempt-3-epoch-2{suffix}")
    assert (server.epochs(), server.steps(), server.reports[-1]["yielding"]) == ([1, 2], 8, True)
    assert any(0.5 in one["metrics"].values() for one in server.reports if "metrics" in one)

    server.order(stop_after=None)
    told = {"EPOCHS_DONE": "2", "SWELL_CHECKPOINT": str(folder / f"attempt-3-epoch-2{suffix}")}
    again = start(text, EPOCHS_TO_BE_DONE="5", JOB_RESTARTED="TRUE", **told, **PATH)
    pass_gates(again, "2")
    code, said, err = finish(again)
    assert (code, [line.split()[0] for line in said], err) == (0, ["3", "4", "finished"], "")
    assert server.checkpoints()[-1] == (5, f"attempt-3-epoch-5{suffix}")


def test_tensorflows_workers_save_together_and_only_rank_0_keeps_it(
    start: Callable[..., Script], server: Server, folder: Path
) -> None:
    """A worker that did not take part left the others in the midst of what they add up: all of them failed."""
    text = KERAS.replace("model.fit", "model.distribute_strategy = MANY\nmodel.fit")
    text = text.replace("\nrun =", "\nfrom keras import MANY\nrun =", 1)
    script = start(text, EPOCHS_TO_BE_DONE="2", RANK="1", WORLD_SIZE="2", **PATH)
    pass_gates(script, "0")
    assert finish(script) == (0, ["1", "finished 2"], "")
    assert (list(folder.iterdir()), server.reports) == ([], [])


def test_the_trainers_saves_are_reported_and_it_saves_before_it_stops(
    start: Callable[..., Script], server: Server, folder: Path
) -> None:
    script = start(TRAINER, EPOCHS_TO_BE_DONE="5", no="saves", **PATH)
    pass_gates(script, "step 6")
    assert server.checkpoints() == [], "its arguments say that it does not save"
    server.order(stop_after=2)
    server.wait_heard(2)
    assert finish(script) == (75, ["step 7", "step 8"], "")
    assert server.checkpoints() == [(2, "checkpoint-8")]
    assert (server.epochs(), server.steps(), server.reports[-1]["yielding"]) == ([1, 2], 8, True)

    server.order(stop_after=None)
    told = {"EPOCHS_DONE": "2", "SWELL_CHECKPOINT": str(folder / "checkpoint-8")}
    again = start(TRAINER, EPOCHS_TO_BE_DONE="3", JOB_RESTARTED="TRUE", **told, **PATH)
    pass_gates(again, "step 9")
    assert finish(again) == (0, ["step 10", "step 11", "step 12", "finished"], "")
    assert server.checkpoints()[-1] == (3, "checkpoint-12")


def test_a_trainer_of_one_process_yields_in_the_middle_of_an_epoch(
    start: Callable[..., Script], server: Server
) -> None:
    script = start(TRAINER, EPOCHS_TO_BE_DONE="5", **PATH)
    pass_gates(script, "step 6")
    server.order_yield()
    assert finish(script) == (75, [], "")
    assert server.checkpoints()[-1] == (1, "checkpoint-6"), "one whole epoch, and a half that is saved with it"
    assert server.epochs() == [1]


def test_a_trainer_of_several_processes_yields_at_the_end_of_an_epoch(
    start: Callable[..., Script], server: Server
) -> None:
    script = start(TRAINER, EPOCHS_TO_BE_DONE="5", WORLD_SIZE="2", **PATH)
    pass_gates(script, "step 6")
    server.order_yield()
    assert finish(script) == (75, ["step 7", "step 8"], "")
    assert server.checkpoints()[-1] == (2, "checkpoint-8")


def test_ranks_of_a_trainer_stop_at_the_step_that_was_chosen_and_go_on_after_it(
    start: Callable[..., Script], server: Server, folder: Path
) -> None:
    """A Trainer of several ranks went on to the end of its epoch, which may be hours away."""
    ranks = [start(TRAINER, EPOCHS_TO_BE_DONE="3", RANK=str(rank), WORLD_SIZE="2", **PATH) for rank in range(2)]
    for one in ranks:
        pass_gates(one, "step 6")
    server.order_step(tell=True)
    server.wait(lambda: {poll["rank"] for poll in server.polls if poll["known"] == "?"} == {"0", "1"}, "both to tell")
    where = {poll["rank"]: (poll["epoch"], poll["step"], poll["of"]) for poll in server.polls if poll["known"] == "?"}
    assert where == {"0": ("1", "1", "2"), "1": ("1", "1", "2")}, "the step under way is not done"
    server.order_step((1, 3))
    for rank in "01":
        server.wait(
            lambda rank=rank: any((poll["rank"], poll["known"]) == (rank, "@1.3") for poll in server.polls),
            f"rank {rank} to hear of it",
        )
    assert [finish(one)[:2] for one in ranks] == [(75, ["step 7"]), (75, ["step 7"])]
    saved = [one["checkpoint"] for one in server.reports if "checkpoint" in one][-1]
    assert {name: saved[name] for name in ("epochs_done", "path", "steps_done", "steps_total")} == {
        "epochs_done": 1,
        "path": "checkpoint-7",
        "steps_done": 3,
        "steps_total": 4,
    }

    server.order_step(None)
    told = {"EPOCHS_DONE": "1", "SWELL_STEPS_DONE": "3", "SWELL_CHECKPOINT": str(folder / "checkpoint-7")}
    again = start(TRAINER, EPOCHS_TO_BE_DONE="3", JOB_RESTARTED="TRUE", **told, **PATH)
    pass_gates(again, "step 8")
    assert finish(again) == (0, ["step 9", "step 10", "step 11", "step 12", "finished"], "")
    assert server.epochs() == [1, 3], "how long the second took nobody knows: a part of it was done before"


@pytest.mark.parametrize(
    "how", ["state=state", "trainer_state=vars(state)", "tc_metrics={'trainer_state': vars(state)}"]
)
def test_the_notifier_reports_the_checkpoint_and_puts_what_older_managers_expect(
    start: Callable[..., Script], server: Server, folder: Path, how: str
) -> None:
    (folder / "checkpoint-40").mkdir()
    (folder / "checkpoint-40" / "model").write_text("x")
    with Listening() as manager:
        script = start(
            f"""
            from transformers import State, TrainingArguments
            from swell_sdk.fms import Notifier
            notifier = Notifier(name="notifier", url="{manager.url}", args=None)
            args = TrainingArguments(output_dir={str(folder)!r}, num_train_epochs=3)
            state = State(num_train_epochs=3, max_steps=60, epoch=1.9999999, global_step=40)
            notifier.act("should_notify", {how}, args=args, control=None)
            """,
            **PATH,
        )
        assert script.end() == (0, "", "")
    assert server.checkpoints() == [(2, "checkpoint-40")]
    [(path, document)] = manager.puts
    assert (path, sorted(document)) == (
        "/job?x=1",
        ["completed_epochs", "job_name", "last_checkpoint_time", "total_epochs"],
    )
    assert (document["completed_epochs"], document["total_epochs"]) == (1.9999999, 3)
    assert "-master" not in document["job_name"]


def test_the_notifiers_yaml_names_what_there_is() -> None:
    document = yaml.safe_load((EXAMPLES / "fms-hf-tuning" / "notifier.yaml").read_text())
    assert document["controller_metrics"] == [{"name": "trainer_state", "class": "TrainingState"}]
    [operation] = document["operations"]
    [controller] = document["controllers"]
    assert operation["class"] == "Notifier"
    assert (controller["triggers"], controller["rule"]) == (["on_save"], "True")
    assert controller["operations"] == [f"{operation['name']}.should_notify"]


class Listening:
    """A job manager of old: takes what is put."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, Any]] = []
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                manager.puts.append((self.path, json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Silent."""

        self._http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/job?x=1"

    def __enter__(self) -> Listening:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
