"""`swell demo`"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from swell.client import Client, Job

SCRIPT = Path(__file__).with_name("demo_job.py")
PATIENCE_S = 120.0  # for the whole story, on a slow machine; it takes about 40 s
LOOK_S = 0.25
RESIZES_MIN = 3
COLUMNS_MAX = 72  # of the chart


@click.command("demo")
def command() -> int:
    """Show four training jobs that share four simulated GPUs: they grow, shrink for an urgent job, and grow back.

    The demo needs no GPU and leaves no files behind. It exits with 0 only if everything went as described.
    """
    from importlib.util import find_spec

    from swell.client.client import Client
    from swell.client.embedded import stop_server
    from swell.errors import Rejected
    from swell.machine.state_folder import StateFolder

    if find_spec("swell_sdk") is None:
        raise Rejected("the demo's jobs use swell-sdk, which is not installed here: pip install ./sdk")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="swell-demo-") as name:
        folder = StateFolder(Path(name) / "state")
        try:
            _start(folder)
            story = Story(Client(folder))
            story.tell()
        finally:
            for job in Client(folder).jobs() if folder.lock_holder("server") else []:
                if not job.has_ended:
                    job.cancel(grace_s=1).wait()
            stop_server(folder)
    took = time.monotonic() - began
    if story.broken:
        print(f"\n{len(story.broken)} step(s) did not go as described:", *story.broken, sep="\n  - ", file=sys.stderr)
        return 1
    print(
        f"\nEverything went as described, in {took:.0f} s; the server and its files are removed. Now run your own job:"
    )
    program = sys.argv[0] if "/" in sys.argv[0] else "swell"
    print(f"  {program} run -- python train.py\n  {program} ps\n  {program} --help")
    return 0


def _start(folder: Any) -> None:
    from swell.client.embedded import ensure_server

    folder.prepare()
    folder.write_json(folder.config, {"gpus": 4, "cpus_milli": 16000})
    print("Starting a server with 4 simulated GPUs ...", flush=True)
    ensure_server(folder)


@dataclass
class Story:
    """The steps of the demo, and those that did not go as described."""

    client: Client
    broken: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    def tell(self) -> None:
        print("\nFour training jobs, each on one to four GPUs. At first, each gets one GPU.")
        anna, ben, carl, dora = (
            self._submit(name, gpus="1..4", epochs=epochs)
            for name, epochs in (("anna", 5), ("ben", 10), ("carl", 28), ("dora", 34))
        )
        screen = Screen(self.jobs)
        self._watch(screen, lambda: anna.has_ended)
        screen.say("anna has ended: another job grows onto its GPU at its next checkpoint.")
        self._watch(screen, lambda: ben.has_ended)
        screen.say("ben has ended, too: carl and dora get two GPUs each.")
        self._watch(screen, lambda: sum(_width(job) for job in (carl, dora)) == 4)
        urgent = self._submit("urgent", gpus=2, priority=10, epochs=6)
        self._say_why(screen, urgent)
        self._watch(screen, lambda: urgent.state == "running")
        self._check(_width(carl) + _width(dora) <= 2, "carl and dora hold GPUs that urgent was given")
        screen.say("They shrank at their checkpoints; urgent is running.")
        self._watch(screen, lambda: urgent.has_ended)
        screen.say("urgent has ended; carl and dora grow back.")
        self._watch(screen, lambda: all(job.has_ended for job in self.jobs))
        screen.close()
        self._look_back()

    # -- telling -------------------------------------------------------------------------------------------------

    def _submit(self, name: str, **options: Any) -> Job:
        job = self.client.submit([sys.executable, str(SCRIPT)], name=name, **options)
        flags = " ".join(f"--{key} {value}" for key, value in options.items())
        print(f"  swell run -d {flags} --name {name} -- python train.py", flush=True)
        self.jobs.append(job)
        return job

    def _watch(self, screen: Screen, is_reached: Any) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_reached():
            if time.monotonic() > until:
                self.broken.append(f"this did not happen within {PATIENCE_S:.0f} s")
                return
            time.sleep(LOOK_S)
            for job in self.jobs:
                job.refresh()
            screen.show()

    def _say_why(self, screen: Screen, job: Job) -> None:
        reason = job.why()
        if reason is not None:
            screen.say(f"$ swell why {job.name}\n  {reason.code}: {reason.message}")
        self._check(
            reason is None or reason.code in ("WaitingForRoom", "NotYetPlanned", "Starting"),
            f"'{job.name}' should be waiting for GPUs, but is {reason}",
        )

    # -- looking back --------------------------------------------------------------------------------------------

    def _look_back(self) -> None:
        documents = [self.client.show(job.id) for job in self.jobs]
        print("\nGPUs held over time, about one column per second:")
        print(*chart(documents), sep="\n")
        resizes = sum(document["resizes"] for document in documents)
        lost = self.client.server()["lost_gpu_seconds"]
        print(f"\nresizes: {resizes}   preemptions: {sum(document['preemptions'] for document in documents)}")
        print(f"lost GPU-seconds: {lost:g}")
        self._check(resizes >= RESIZES_MIN, f"expected at least {RESIZES_MIN} resizes, got {resizes}")
        self._check(lost == 0, f"expected no lost work, but {lost:g} GPU-seconds were lost")
        for job, document in zip(self.jobs, documents, strict=True):
            self._check_training(job, document)

    def _check_training(self, job: Job, document: dict[str, Any]) -> None:
        """Check that a job trained every epoch once, over all its attempts, and that its loss fell."""
        self._check(job.state == "succeeded", f"'{job.name}' should have succeeded, but is {job.state}")
        text = ""
        for attempt in document["attempts"]:
            text += b"".join(self.client.logs(job.id, attempt=attempt["number"])).decode()
        told = [(int(epoch), float(loss)) for epoch, loss in re.findall(r"epoch (\d+) .*loss ([\d.]+)", text)]
        epochs, losses = [epoch for epoch, _ in told], [loss for _, loss in told]
        wanted = list(range(1, document["spec"]["epochs"] + 1))
        self._check(epochs == wanted, f"'{job.name}' should have trained each epoch once, but trained {epochs}")
        self._check(bool(losses) and losses[-1] < losses[0], f"the loss of '{job.name}' did not fall: {losses}")
        widths = " → ".join(str(attempt["width"]) for attempt in document["attempts"])
        if losses:
            print(f"  {job.name:<7} widths {widths:<20} loss {losses[0]:.3f} → {losses[-1]:.3f}")

    def _check(self, is_true: bool, otherwise: str) -> None:
        if not is_true:
            self.broken.append(otherwise)


class Screen:
    """A table of the jobs: redrawn in place on a terminal; printed again after each change elsewhere."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = jobs
        self._drawn = 0  #: lines of the table that stand on the terminal
        self._seen: object = None
        self._is_terminal = sys.stdout.isatty()

    def show(self) -> None:
        from swell.cli.printing import table_lines

        seen = [(job.state, _width(job)) for job in self._jobs]
        if not self._is_terminal and seen == self._seen:
            return
        self._seen = seen
        lines = table_lines(
            ["ID", "NAME", "STATE", "GPUS", "EPOCHS", "LOSS"], [_row(job) for job in self._jobs], states=2
        )
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="")
        print(*([] if self._is_terminal else [""]), *lines, sep="\n", flush=True)
        self._drawn = len(lines) if self._is_terminal else 0

    def say(self, text: str) -> None:
        """Print a line above the table."""
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="")
        self._drawn, self._seen = 0, None
        print(f"\n{text}", flush=True)

    def close(self) -> None:
        self._drawn = 0


def _row(job: Job) -> list[str]:
    document = job.document
    progress = document["progress"]
    done, total = progress["epochs_done"] or 0, progress["epochs_total"] or 0
    bar = "█" * round(10 * done / total) if total else ""
    loss = document["metrics"].get("loss")
    return [
        str(job.id),
        job.name,
        job.state,
        "▮" * _width(job) or "-",
        f"{bar:<10} {done:g}/{total:g}",
        "-" if loss is None else f"{loss:.3f}",
    ]


def _width(job: Job) -> int:
    return int(job.document["width"])


def chart(documents: list[dict[str, Any]]) -> list[str]:
    """A chart with one row per job: how many GPUs it held over time."""
    from swell.cli.printing import moment

    lives = [
        (n, moment(attempt["created_at"]) or 0.0, moment(attempt["ended_at"]) or 0.0, attempt["width"])
        for n, document in enumerate(documents)
        for attempt in document["attempts"]
    ]
    begin, end = min(since for _, since, _, _ in lives), max(until for _, _, until, _ in lives)
    step = max(0.5, (end - begin) / COLUMNS_MAX)
    rows = []
    for n, document in enumerate(documents):
        moments = (begin + step * (column + 0.5) for column in range(int((end - begin) / step) + 1))
        held = "".join(_held([life for life in lives if life[0] == n], at) for at in moments)
        rows.append(f"  {document['name']:<7} {held.rstrip()}")
    ticks = "".join(f"{step * column:<10.0f}" for column in range(0, int((end - begin) / step) + 1, 10))
    return [*rows, f"  {'s':<7} {ticks.rstrip()}"]


def _held(lives: list[tuple[int, float, float, int]], at: float) -> str:
    return next((str(width) for _, since, until, width in lives if since <= at < until), " ")
