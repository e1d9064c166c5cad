"""What happens to training when anything is killed at random moments?

One round, from one seed: a private server with three GPUs, a job that trains on one to three of them with a checkpoint
after every epoch, and guests that come and go, so that it is resized all the while. Meanwhile the server, the
worker, the job's own process, or the job in the midst of writing a checkpoint are killed with SIGKILL. At the end its
weights must be those of a run that nobody disturbed, and its log must tell how it got there: nothing that was saved is
done again, nothing is left out, half a checkpoint is never read, and what was done twice was counted as lost.

`.venv/bin/python -m tests.crash.training SEED` repeats one round.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.client import Client
from swell.client.embedded import ensure_server
from swell.machine.state_folder import StateFolder

from .rounds import end_everything, left_behind, play

EPOCHS = 40
KILLS = 5
RETRIES = 20
PATIENCE_S = 90.0
#: The last one kills the job when nobody is there to be told what it has saved.
VICTIMS = ("server", "worker", "server worker", "job", "writing job", "writing job", "server job")

#: Weights that depend on every epoch and on their order. Says what it has done before it saves, and what it has saved.
SCRIPT = r"""
import hashlib, json, os, sys, time
import swell_sdk

def write(path, weights):
    # Slowly, in pieces, and with a checksum at the end.
    body = json.dumps(weights)
    text = body + hashlib.sha256(body.encode()).hexdigest()
    with open(path, "w") as file:
        for start in range(0, len(text), 16):
            file.write(text[start : start + 16])
            file.flush()
            time.sleep(0.004)

def read(path):
    text = open(path).read()
    body, checksum = text[:-64], text[-64:]
    if hashlib.sha256(body.encode()).hexdigest() != checksum:
        say(f"half a checkpoint was read: {path}")
        sys.exit(1)
    return json.loads(body)

def say(text):
    sys.stdout.write(text + "\n")  # in one piece: the library says something too
    sys.stdout.flush()

run = swell_sdk.attach()
with open(sys.argv[1] + "/pid", "w") as file:
    file.write(str(os.getpid()))
weights = read(run.checkpoint_path) if run.checkpoint_path else ""
say(f"told {os.environ['EPOCHS_DONE']} resumes {run.epochs_done} at width {run.width}")
for epoch in run.epochs():
    for _ in run.steps(range(4)):
        time.sleep(0.05 / run.width)
    weights = hashlib.sha256((weights + " " + str(epoch)).encode()).hexdigest()
    say(f"done {epoch + 1}")
    run.save(lambda path: write(path, weights))
    say(f"saved {epoch + 1}")
say(f"weights {weights}")
"""
BEGIN = re.compile(r"told (\d+) resumes (\d+) at width (\d+)")


def undisturbed() -> str:
    weights = ""
    for epoch in range(EPOCHS):
        weights = hashlib.sha256(f"{weights} {epoch}".encode()).hexdigest()
    return weights


@dataclass(frozen=True)
class Life:
    """One attempt, by its own log."""

    number: int
    told: int
    resumed: int
    done: list[int]
    saved: list[int]


class TrainingRound:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.random = random.Random(seed)
        self.state = StateFolder(folder / "state")
        self.job_kills = 0

    def run(self) -> list[str]:
        """What went wrong; empty when everything held."""
        self.state.prepare()
        self.state.write_json(self.state.config, {"gpus": 3, "cpus_milli": 8000})
        ensure_server(self.state)
        (self.folder / "train.py").write_text(SCRIPT)
        try:
            command = [sys.executable, str(self.folder / "train.py"), str(self.folder)]
            self.job = self._submit(command, name="train", gpus="1..3", epochs=EPOCHS, retries=RETRIES, grace="5s")
            for victim in self.random.sample(VICTIMS, KILLS):
                self._invite_guests()
                self._wait_for_training()
                self._kill(victim)
                ensure_server(self.state)
            problems = self._verify()
        finally:
            end_everything(self.state)
        return problems + left_behind(self.folder)

    # -- work --------------------------------------------------------------------------------------------------

    def _submit(self, command: list[str], **spec: Any) -> int:
        return Client(self.state).submit(command, cpus=0.5, workdir=self.folder, **spec).id

    def _invite_guests(self) -> None:
        for _ in range(self.random.randint(0, 2)):
            seconds = f"{self.random.uniform(0.3, 1.0):.3f}"
            self._submit(["sleep", seconds], name="guest", gpus=1, priority=self.random.choice([0, 0, 9]))

    # -- faults ------------------------------------------------------------------------------------------------

    def _wait_for_training(self) -> None:
        self._until(self._trainer, "its process is there")
        time.sleep(self.random.uniform(0.0, 1.2))  # the random moment

    def _kill(self, victims: str) -> None:
        if victims == "writing job":
            self._until(self._is_writing, "a checkpoint is being written")
            victims = "job"
        for victim in victims.split():
            pid = self._trainer() if victim == "job" else self.state.lock_holder(victim)
            if pid:
                self.job_kills += victim == "job"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _trainer(self) -> int | None:
        """The job's own process; None: it has none at the moment."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "pid").read_text())
            if b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def _is_writing(self) -> bool:
        """Is there half a checkpoint of the process that lives? Or has it nothing more to write?"""
        pid = self._trainer()
        folder = self.state.root / "checkpoints" / str(self.job)
        has_ended = Client(self.state).job(self.job).has_ended
        return has_ended or (pid is not None and any(folder.glob(f".partial-*-{pid}-*-epoch-*")))

    def _until(self, is_true: Any, what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_true():
            if Client(self.state).job(self.job).has_ended:
                return
            assert time.monotonic() < until, f"seed {self.seed}: waited {PATIENCE_S} s until {what}"
            time.sleep(0.005)

    # -- the end -----------------------------------------------------------------------------------------------

    def _verify(self) -> list[str]:
        client = Client(self.state)
        job = client.job(self.job).wait(timeout_s=PATIENCE_S)
        shown = client.show(self.job)
        problems = []
        if (job.state, job.exit_code) != ("succeeded", 0):
            problems.append(f"it is {job.state} with {job.exit_code}: {job.document['reason']}")
        lives, texts = self._read_lives(client, shown)
        problems += [f"attempt {n} says: {text}" for n, text in texts.items() if "half a checkpoint" in text]
        if not texts or f"weights {undisturbed()}\n" not in texts[max(texts)]:
            problems.append("its weights are not those of an undisturbed run")
        problems += self._verify_lives(lives, shown)
        problems += self._verify_loss(lives, shown)
        folder = self.state.root / "checkpoints" / str(self.job)
        problems += [f"{path.name} was not cleared away" for path in folder.glob(".partial-*")]
        return problems

    def _read_lives(self, client: Client, shown: dict[str, Any]) -> tuple[list[Life], dict[int, str]]:
        lives, texts = [], {}
        for attempt in shown["attempts"]:
            number = attempt["number"]
            text = texts[number] = b"".join(client.logs(self.job, attempt=number)).decode()
            found = BEGIN.search(text)
            if found:  # else it was killed before it said anything
                done, saved = (
                    [int(n) for n in re.findall(rf"^{word} (\d+)$", text, re.M)] for word in ("done", "saved")
                )
                lives.append(Life(number, int(found[1]), int(found[2]), done, saved))
        return lives, texts

    def _verify_lives(self, lives: list[Life], shown: dict[str, Any]) -> list[str]:
        """Each goes on from what it was told, or from what was saved while nobody was there to be told."""
        problems = []
        resumed = {attempt["number"]: attempt["resumed_from_epoch"] for attempt in shown["attempts"]}
        saved = done = told = 0
        for life in lives:
            where = f"attempt {life.number} ({life})"
            if life.told != int(resumed[life.number]) or life.told < told:  # it may go on inside an epoch
                problems.append(f"{where}: the server recorded {resumed[life.number]}, and {told} before")
            if not max(saved, life.told) <= life.resumed <= max(done, 0):
                problems.append(f"{where}: {saved} epochs were saved and {done} done before")
            if life.done != list(range(life.resumed + 1, life.resumed + 1 + len(life.done))):
                problems.append(f"{where}: its epochs do not follow from where it resumed")
            told = life.told
            saved, done = max([saved, *life.saved]), max([done, *life.done])
        moments = [at for one in shown["attempts"] for at in (one["created_at"], one["started_at"], one["ended_at"])]
        if moments != sorted(moments):
            problems.append(f"the times of its attempts are out of order: {moments}")
        if done != EPOCHS:
            problems.append(f"{done} epochs were done, not {EPOCHS}")
        return problems

    def _verify_loss(self, lives: list[Life], shown: dict[str, Any]) -> list[str]:
        every = [epoch for life in lives for epoch in life.done]
        twice = sorted({epoch for epoch in every if every.count(epoch) > 1})
        lost = shown["lost_gpu_seconds"]
        if twice and not lost > 0:
            return [f"epochs {twice} were done twice, but the loss is counted as {lost} GPU-seconds"]
        if lost and not self.job_kills:
            return [f"nothing of the job was killed, but {lost} GPU-seconds are counted as lost"]
        if shown["failures"] > self.job_kills:
            return [f"it was killed {self.job_kills} times, but has {shown['failures']} failures"]
        return []


def play_training(seed: int) -> list[str]:
    return play(seed, TrainingRound)


if __name__ == "__main__":
    sys.exit(subprocess.list2cmdline(play_training(int(sys.argv[1]))) or 0)
