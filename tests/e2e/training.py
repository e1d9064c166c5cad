"""What did a job do, by its own word? Its log over all attempts, and what the server asked of it meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server import Server

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
SDK = ROOT / "sdk/src"
#: Trains twenty epochs a second, says what it does, and saves after each epoch.
TRAIN = """
import time
from pathlib import Path
import swell_sdk
run = swell_sdk.attach()
print("from", Path(run.checkpoint_path).read_text() if run.restarted else 0, flush=True)
for epoch in run.epochs():
    time.sleep(0.05)
    print("epoch", epoch, flush=True)
    run.save(lambda path: Path(path).write_text(str(epoch + 1)))
"""
EPOCH = re.compile(r"epoch (\d+): loss ([\d.]+)")
BEGAN = re.compile(r"(\d+) epochs and (\d+) samples done")


@dataclass(frozen=True)
class Life:
    """One attempt."""

    width: int
    epochs: list[int]  #: in the order of its log
    losses: list[float]
    outcome: str
    codes: list[int]  #: exit codes, by rank
    began: tuple[int, int] | None = None  #: epochs and samples that were done before; None: it did not say


@dataclass(frozen=True)
class Story:
    lives: list[Life]
    asked: list[str]  #: what it was asked to do and why, in words
    document: dict[str, Any]

    @property
    def epochs(self) -> list[int]:
        return [epoch for life in self.lives for epoch in life.epochs]

    @property
    def losses(self) -> list[float]:
        return [loss for life in self.lives for loss in life.losses]


def read_story(server: Server, job: int) -> Story:
    client = server.client()
    document = client.show(job)
    lives = []
    for attempt in document["attempts"]:
        log = b"".join(client.logs(job, rank=0, attempt=attempt["number"])).decode()
        found = EPOCH.findall(log)
        codes = [task["exit_code"] for task in attempt["tasks"]]
        epochs, losses = [int(epoch) for epoch, _ in found], [float(loss) for _, loss in found]
        said = BEGAN.search(log)
        began = (int(said[1]), int(said[2])) if said else None
        lives.append(Life(attempt["width"], epochs, losses, attempt["outcome"], codes, began))
    asked = [event["detail"]["cause"] for event in document["events"] if event["kind"] == "AskedToYield"]
    return Story(lives, asked, document)


def until_trained(server: Server, job: int, *, width: int, patience_s: float = 60.0) -> None:
    """Until it runs at this width and has finished an epoch there."""
    run = server.until_true(
        job,
        lambda document: document["state"] == "running" and document["width"] == width,
        patience_s=patience_s,
    )
    server.until_true(
        job,
        lambda document: (document["progress"]["epochs_done"] or 0) > (run["progress"]["epochs_done"] or 0),
        patience_s=patience_s,
    )
