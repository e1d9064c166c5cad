"""A job that can save at any step stops at the step it is asked for, and the next attempt goes on right after it."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swell_sdk import Run, read_environment
from swell_sdk.checkpoints import read_age
from swell_sdk.orders import Asked, Orders
from swell_sdk.repeatable import is_repeatable

from .scripts import SDK, Script
from .server import BOUND_S, Server, serving

#: Trains on numbers, says each, saves what it has seen; waits at a gate after the step that GATE names.
TRAINS = """
import swell_sdk
run = swell_sdk.attach()
seen = json.load(open(run.checkpoint_path)) if run.checkpoint_path else []
run.on_yield(lambda path: json.dump(seen, open(path, "w")))
for epoch in run.epochs(2):
    for batch in run.steps(list(range(int(os.environ["STEPS"])))):
        seen.append([epoch, batch])
        if [epoch, batch] == json.loads(os.environ.get("GATE", "[]")):
            gate("here")
print(json.dumps(seen))
"""


def trains(start: Callable[..., Script], **environ: str) -> Script:
    return start("import json\n" + TRAINS, **environ)


def told(server: Server) -> dict[str, str]:
    """What the next attempt is given, from the last checkpoint."""
    checkpoint = [one["checkpoint"] for one in server.reports if "checkpoint" in one][-1]
    names = {"steps_done": "SWELL_STEPS_DONE", "steps_total": "SWELL_STEPS_TOTAL", "samples_done": "SWELL_SAMPLES_DONE"}
    inside = {name: str(checkpoint[key]) for key, name in names.items() if key in checkpoint}
    path = str(server.folder / checkpoint["path"])
    return {"EPOCHS_DONE": str(checkpoint["epochs_done"]), "SWELL_CHECKPOINT": path, "JOB_RESTARTED": "TRUE", **inside}


def last_checkpoint(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = {**[one["checkpoint"] for one in server.reports if "checkpoint" in one][-1]}
    del found["at"]
    return found


def test_asked_to_stop_at_a_step_it_saves_there_and_the_next_attempt_does_the_rest(
    start: Callable[..., Script], server: Server, tmp_path: Path
) -> None:
    first = trains(start, STEPS="5", GATE="[0, 2]")
    assert first.at_gate() == "here"
    server.order_step((0, 0))
    server.wait(lambda: any(poll["known"] == "@0.0" for poll in server.polls), "it to hear of it")
    first.go()
    assert first.end() == (75, "", "")
    assert last_checkpoint(server) == {
        "epochs_done": 0,
        "path": "attempt-3-epoch-0-step-3",
        "steps_done": 3,
        "steps_total": 5,
    }
    assert server.reports[-1]["yielding"] is True
    with serving(server.folder, attempt="12.4") as again:
        second = Script("import json\n" + TRAINS, again.environ(STEPS="5", **told(server)), tmp_path)
        code, out, err = second.end()
    assert (code, err) == (0, "")
    assert json.loads(out) == [[epoch, step] for epoch in range(2) for step in range(5)], "none twice, none left out"


def test_at_another_number_of_steps_the_same_part_of_the_epoch_is_left_out(server: Server, tmp_path: Path) -> None:
    (server.folder / "one").write_text("[]")
    environ = {"EPOCHS_DONE": "0", "SWELL_CHECKPOINT": str(server.folder / "one")}
    environ |= {"SWELL_STEPS_DONE": "6", "SWELL_STEPS_TOTAL": "12", "STEPS": "4"}
    code, out, _ = Script("import json\n" + TRAINS, server.environ(**environ), tmp_path).end()
    assert (code, json.loads(out)[:2]) == (0, [[0, 2], [0, 3]])


def test_ranks_say_where_they_are_when_asked_and_stop_at_the_same_step(
    start: Callable[..., Script], server: Server
) -> None:
    ranks = [
        trains(start, STEPS="9", GATE=f"[0, {at}]", RANK=str(rank), WORLD_SIZE="2") for rank, at in ((0, 1), (1, 2))
    ]
    assert [one.at_gate() for one in ranks] == ["here", "here"]
    server.order_step(tell=True)
    server.wait(lambda: {poll["rank"] for poll in server.polls if poll["known"] == "?"} == {"0", "1"}, "both to tell")
    where = {poll["rank"]: (poll["epoch"], poll["step"], poll["of"]) for poll in server.polls if poll["known"] == "?"}
    assert where == {"0": ("0", "1", "2"), "1": ("0", "2", "2")}, "the step under way is not done"
    server.order_step((0, 4))
    for rank in ("0", "1"):
        server.wait(
            lambda rank=rank: any((poll["rank"], poll["known"]) == (rank, "@0.4") for poll in server.polls),
            f"rank {rank} to hear of it",
        )
    for one in ranks:
        one.go()
    assert [one.end()[0] for one in ranks] == [75, 75]
    assert last_checkpoint(server)["steps_done"] == 4
    assert json.loads((server.folder / "attempt-3-epoch-0-step-4").read_text()) == [[0, step] for step in range(4)]


def test_after_the_last_step_of_an_epoch_it_ends_the_epoch_first(start: Callable[..., Script], server: Server) -> None:
    one = trains(start, STEPS="3", GATE="[0, 2]")
    assert one.at_gate() == "here"
    server.order_step((0, 1))
    server.wait(lambda: any(poll["known"] == "@0.1" for poll in server.polls), "it to hear of it")
    one.go()
    assert one.end() == (75, "", "")
    assert server.reports[-1]["epochs_done"] == 1
    assert server.checkpoints() == [], "only the script knows how it saves at the end of an epoch"


def test_sigterm_inside_an_epoch_loses_nothing_where_the_job_is_one_process(
    start: Callable[..., Script], server: Server
) -> None:
    one = trains(start, STEPS="5", GATE="[1, 3]")
    assert one.at_gate() == "here"
    one.signal(signal.SIGTERM)
    one.go()
    assert one.end() == (75, "", "")
    assert last_checkpoint(server) == {
        "epochs_done": 1,
        "path": "attempt-3-epoch-1-step-4",
        "steps_done": 4,
        "steps_total": 5,
    }


def test_what_was_saved_inside_an_epoch_and_not_reported_is_found_by_the_next_attempt(
    start: Callable[..., Script], server: Server, tmp_path: Path
) -> None:
    one = trains(start, STEPS="5", GATE="[0, 1]")
    assert one.at_gate() == "here"
    server.set_mode(503)
    one.signal(signal.SIGTERM)
    one.go()
    assert one.end()[0] == 75
    with serving(server.folder, attempt="12.4") as again:
        code, out, _ = Script("import json\n" + TRAINS, again.environ(STEPS="5"), tmp_path).end()
        assert last_checkpoint(again)["steps_done"] == 2
    assert (code, json.loads(out)) == (0, [[epoch, step] for epoch in range(2) for step in range(5)])


def test_only_the_first_loop_of_an_epoch_says_where_it_is(attached: Callable[..., Run]) -> None:
    run = attached(EPOCHS_TO_BE_DONE="1")
    for _ in run.epochs():
        for _ in run.steps(range(3)):
            list(run.steps(range(2)))
        list(run.steps(range(7)))
        assert run.news.position == (0, 3)
    assert run.news.steps == 3 + 3 * 2 + 7


def test_a_job_that_cannot_save_at_a_step_is_not_stopped_there(attached: Callable[..., Run]) -> None:
    run = attached(EPOCHS_TO_BE_DONE="1")
    for _ in run.epochs():
        run.orders.hear(Asked(stop_at_step=(0, 0)))
        assert list(run.steps(range(4))) == [0, 1, 2, 3]
        assert not run.news.can_stop_at_steps


def test_an_epoch_of_which_a_part_was_done_before_is_measured_as_a_whole_one(server: Server) -> None:
    (server.folder / "one").write_text("")
    environ = {"SWELL_CHECKPOINT": str(server.folder / "one"), "SWELL_STEPS_DONE": "7", "SWELL_STEPS_TOTAL": "10"}
    run = Run(read_environment(server.environ(EPOCHS_TO_BE_DONE="1", **environ)))
    for _ in run.epochs():
        assert list(run.steps(range(10))) == [7, 8, 9]
        own = run._own
    assert own is not None
    assert own.whole_s(3.0) == 10.0
    run.close()


@pytest.mark.parametrize(
    ("name", "age"),
    [
        ("attempt-3-epoch-5", (3, 5, 0, 1)),
        ("attempt-3-epoch-5-step-120", (3, 5, 120, 1)),
        ("attempt-3-epoch-5-2", (3, 5, 0, 2)),
        ("attempt-3-epoch-5-step-120-2.ckpt", (3, 5, 120, 2)),
        ("attempt-3", None),
    ],
)
def test_a_checkpoints_name_says_which_is_newer(name: str, age: tuple[int, ...] | None) -> None:
    assert read_age(name) == age


def test_sigterm_that_comes_while_the_server_is_heard_is_not_forgotten() -> None:
    orders = Orders()
    orders.terminate()
    orders.hear(Asked())
    assert orders.may_stop


SAMPLER = """
import json, random, sys
from swell_sdk.environment import read_environment
from swell_sdk.run import Run
from swell_sdk.torch import ResumableSampler

def run_of(ranks, rank, done):
    told = {"EPOCHS_DONE": "4", "SWELL_CHECKPOINT": "/", "SWELL_STEPS_DONE": "1" if done else "0"}
    told |= {"SWELL_SAMPLES_DONE": str(done)} if done else {}
    return Run(read_environment({**told, "SWELL_CHECKPOINTS": "/", "RANK": str(rank), "WORLD_SIZE": str(ranks)}))

seed = int(sys.argv[1])
draw = random.Random(seed)
for _ in range(200):
    samples, batch = draw.randint(1, 200), draw.randint(1, 9)
    done, seen, widths = 0, [], []
    while done < samples:
        ranks = draw.randint(1, 5)
        widths.append(ranks)
        each = [ResumableSampler(samples, batch, seed=seed, run=run_of(ranks, rank, done)) for rank in range(ranks)]
        assert len({len(one) for one in each}) == 1
        batches = [list(one) for one in each]
        assert all(len(one) == len(each[0]) for one in batches), "every rank takes part in every step"
        steps = len(each[0]) if draw.random() < 0.3 else draw.randint(1, len(each[0]))
        for step in range(steps):
            at_once = [index for one in batches for index in one[step]]
            left = samples - len(seen)
            seen += at_once if left >= ranks else sorted(set(at_once))
        done = each[0].samples_after(steps)
    assert sorted(seen) == list(range(samples)), (seed, samples, batch, widths)
whole = [list(ResumableSampler(64, 4, seed=seed, run=run_of(2, rank, 0))) for rank in range(2)]
rest = [list(ResumableSampler(64, 4, seed=seed, run=run_of(2, rank, 24))) for rank in range(2)]
assert [one[3:] for one in whole] == rest, "at the same width the rest is the rest"
print("held")
"""


def test_samples_of_an_epoch_are_seen_once_whatever_the_widths(tmp_path: Path) -> None:
    """With Debian's PyTorch, whose random order the sampler takes."""
    seed = 7
    print(f"seed {seed}")
    done = subprocess.run(
        ["/usr/bin/python3", "-c", SAMPLER, str(seed)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SDK)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=6 * BOUND_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "held\n", "")


#: The same, but it has no `on_yield`: it saves at the end of every epoch. HOW makes the function that does it.
SAVES = """
import json, swell_sdk
run = swell_sdk.attach()
class Model:
    def __init__(self): self.seen = json.load(open(run.checkpoint_path)) if run.checkpoint_path else []
    def save(self, path): json.dump(self.seen, open(path, "w"))
model = Model()
for epoch in run.epochs(3):
    for batch in run.steps(list(range(4))):
        model.seen.append([epoch, batch])
        if [epoch, batch] == json.loads(os.environ.get("GATE", "[]")):
            gate("here")
    copy = list(model.seen)
    HOW
print(json.dumps(model.seen))
"""


@pytest.mark.parametrize("how", ["run.save(model.save)", "run.save(lambda path: model.save(path), suffix='.json')"])
def test_what_a_script_saved_with_at_the_end_of_an_epoch_saves_at_a_step_of_the_next(
    start: Callable[..., Script], server: Server, tmp_path: Path, how: str
) -> None:
    """Without `on_yield` a job waited for the end of its epoch, however it saved."""
    first = start(SAVES.replace("HOW", how), GATE="[1, 1]")
    assert first.at_gate() == "here"
    server.order_step((1, 0))
    server.wait(lambda: any(poll["known"] == "@1.0" for poll in server.polls), "it to hear of it")
    first.go()
    assert first.end() == (75, "", "")
    saved = last_checkpoint(server)
    assert (saved["epochs_done"], saved["steps_done"], saved["steps_total"]) == (1, 2, 4)
    with serving(server.folder, attempt="12.4") as again:
        code, out, err = Script(SAVES.replace("HOW", how), again.environ(**told(server)), tmp_path).end()
    assert (code, err) == (0, "")
    assert json.loads(out) == [[epoch, step] for epoch in range(3) for step in range(4)], "none twice, none left out"


@pytest.mark.parametrize(
    "how",
    [
        "run.save(lambda path: json.dump(copy, open(path, 'w')))",
        "run.save(model.save, at_steps=False)",
        "run.save(model.save, suffix='.model'); run.save(model.save, suffix='.optimizer')",
    ],
)
def test_a_function_that_may_write_a_copy_or_half_of_a_checkpoint_is_not_called_at_a_step(
    start: Callable[..., Script], server: Server, how: str
) -> None:
    one = start(SAVES.replace("HOW", how), GATE="[1, 1]")
    assert one.at_gate() == "here"
    server.order_step((1, 0))
    server.wait(lambda: any(poll["known"] == "@1.0" for poll in server.polls), "it to hear of it")
    one.go()
    assert one.end() == (75, "", "")
    assert last_checkpoint(server)["epochs_done"] == 2, "it goes on to the end of its epoch"
    assert not any("step" in poll for poll in server.polls)


def test_an_order_that_torch_draws_at_random_is_not_resumed_inside_an_epoch_unless_the_script_says_so(
    attached: Callable[..., Run],
) -> None:
    class Sampler:
        generator = None

    class Loader(list[int]):
        sampler = Sampler()

    run = attached(EPOCHS_TO_BE_DONE="2")
    model = Recorder()
    for epoch in run.epochs():
        for _ in run.steps(Loader(range(4))):
            pass
        run.save(model.save)
        assert not run.news.can_stop_at_steps, epoch
    sure = attached(EPOCHS_TO_BE_DONE="1")
    sure.on_yield(model.save)
    for _ in sure.epochs():
        list(sure.steps(Loader(range(4))))
    assert sure.news.can_stop_at_steps


def test_the_function_that_the_script_saved_with_last_is_called_at_a_step(
    attached: Callable[..., Run], tmp_path: Path
) -> None:
    """It was the first one: a model of the warm-up, saved as if it had been trained since."""
    run = attached(EPOCHS_TO_BE_DONE="5")
    first, second = Counting(), Counting()
    stopped: list[int] = []
    for epoch in run.epochs():
        model = first if epoch < 2 else second
        for step in run.steps(range(4)):
            if epoch == 3 and step == 1:
                run.save_if_due(run._own)  # type: ignore[arg-type]
                stopped.append(step)
        run.save(model.save, at_steps=None if epoch < 4 else False)
    assert stopped == [1]
    assert (first.count, second.count) == (2, 4)
    assert not run.news.can_stop_at_steps, "the last one may not be called again"


NUMBERS = [1.0]


def write_numbers(path: str) -> None:
    Path(path).write_text(str(NUMBERS))


class Recorder:
    def save(self, path: str) -> None:
        Path(path).write_text("model")


class Counting(Recorder):
    count = 0

    def save(self, path: str) -> None:
        super().save(path)
        self.count += 1


def test_only_a_function_that_can_hold_no_copy_is_called_again() -> None:
    model, epoch, state = Recorder(), 3, {"weights": [1.0]}

    def write(path: str, what: object = state) -> None:
        Path(path).write_text(str(what))

    told = {
        "a method": is_repeatable(model.save),
        "a function of objects and numbers": is_repeatable(lambda path: (model.save(path), epoch)),
        "a function of data": is_repeatable(lambda path: Path(path).write_text(str(state))),
        "one inside another": is_repeatable(lambda path: [Path(path).write_text(str(state)) for _ in range(1)]),
        "data of another function": is_repeatable(lambda path: write_numbers(path)),
        "data as a default": is_repeatable(write),
        "data handed over": is_repeatable(functools.partial(write, what=state)),
        "an object handed over": is_repeatable(functools.partial(Recorder.save, model)),
        "a method of data": is_repeatable(state.__setitem__),
    }
    assert [name for name, is_so in told.items() if is_so] == [
        "a method",
        "a function of objects and numbers",
        "an object handed over",
    ]


def test_what_is_to_be_saved_every_so_often_is_saved_inside_an_epoch_and_a_crash_costs_no_more(
    start: Callable[..., Script], server: Server, tmp_path: Path
) -> None:
    first = start("import json\n" + TRAINS, STEPS="5", GATE="[1, 3]", SWELL_CHECKPOINT_EVERY_S="0.000001")
    assert first.at_gate() == "here"
    server.wait(lambda: last_done(server) == (1, 3), "the third step of the second epoch to be reported")
    first.kill()
    assert not any(one.get("yielding") for one in server.reports)
    with serving(server.folder, attempt="12.4") as again:
        code, out, err = Script("import json\n" + TRAINS, again.environ(STEPS="5", **told(server)), tmp_path).end()
    assert (code, err) == (0, "")
    assert json.loads(out) == [[epoch, step] for epoch in range(2) for step in range(5)], "none twice, none left out"


def last_done(server: Server) -> tuple[int, int] | None:
    found = [one["checkpoint"] for one in server.reports if "checkpoint" in one]
    return (found[-1]["epochs_done"], found[-1].get("steps_done", 0)) if found else None


def test_before_that_time_has_passed_it_saves_only_when_asked(attached: Callable[..., Run]) -> None:
    run = attached(EPOCHS_TO_BE_DONE="1", SWELL_CHECKPOINT_EVERY_S="3600")
    saved: list[str] = []
    run.on_yield(saved.append)
    for _ in run.epochs():
        list(run.steps(range(50)))
    assert saved == []
