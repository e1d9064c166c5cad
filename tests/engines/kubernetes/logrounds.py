"""One round of keeping a log, drawn from a seed: `.venv/bin/python -m tests.engines.kubernetes.logrounds SEED…`."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.logs.keeper import LogKeeper

from .apiserver import ApiServer
from .conftest import access_to
from .faults import Drawn
from .keeping import QUICK, file_of, source_of, text_of, until
from .podlogs import NANO, Break, RunningPod
from .seeds import play_all

STEPS = 150
BREAKS_MAX = 4  # in a row: after more the keeper may give up on a pod that has ended


class Round:
    """A container speaks, may begin anew, and ends, while streams break at any byte and the keeper is killed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.lots = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.root = folder / "tasks"
        self._breaking = random.Random(seed + 1)
        self._faults = Drawn(seed, rate=self.lots.choice((0.0, 0.1, 0.3)))
        self._server = ApiServer(folder / "token", faults=self._faults)
        self._port = ApiClient(access_to(self._server), answer_s=0.3)
        self._may_restart = self.lots.random() < 0.5
        self.pod = RunningPod(self._server, policy="OnFailure")
        self.pod.logs.breaks = self._break
        self._at = 1_794_800_000 * NANO
        self._rate = self.lots.choice((0.0, 0.5, 0.9))
        self._in_a_row = 0
        self._keeper = self._new_keeper()

    def play(self) -> None:
        try:
            for number in range(STEPS):
                self._step(number)
            self.pod.end()
            self._faults.is_over = True
            until(lambda: self._keeper.finish(source_of(self.pod), timeout_s=0.1))
        finally:
            self._keeper.close()
            self._port.close()
            self._server.close()

    @property
    def written(self) -> bytes:
        return self.pod.logs.text

    @property
    def kept(self) -> bytes:
        return text_of(self.root)

    @property
    def broken(self) -> list[str]:
        return [] if self.kept == self.written else [f"kept {self.kept!r} of {self.written!r}"]

    def _step(self, number: int) -> None:
        self._speak(number)
        self._keeper.follow(source_of(self.pod))
        if self.lots.random() < 0.05:
            self._kill()
        if self._may_restart and self.lots.random() < 0.03:
            self._restart()
        threading.Event().wait(self.lots.choice((0.0, 0.0, 0.001, 0.005)))

    def _speak(self, number: int) -> None:
        self._at += self.lots.choice((0, 0, 1, 1000, NANO // 3, NANO, 3 * NANO))
        early = self.lots.choice((0, 0, 0, 300))  # stdout and stderr are put in order after they are stamped
        filling = self.lots.choice((b"", b"\r\0\xff", b"x" * 200, b"y" * 20_000))
        is_partial = self.lots.random() < 0.1
        self.pod.logs.write(self._at - early, b"%d" % number + filling, is_partial=is_partial)

    def _break(self, follow: bool) -> Break | None:
        if self._breaking.random() >= self._rate or self._in_a_row == BREAKS_MAX:
            self._in_a_row = 0
            return None
        self._in_a_row += 1
        is_orderly = follow and self._breaking.random() < 0.3  # as if in order, while it runs: the kubelet was lost
        self.seen["broken in order" if is_orderly else "broken"] += 1
        return self._breaking.choice((0, 10, 40, 300, 25_000)) + self._breaking.randrange(40), is_orderly

    def _kill(self) -> None:
        """Between a write and its mark, or in the middle of a write."""
        self._keeper.close()
        if file_of(self.root).exists() and self.lots.random() < 0.7:
            with file_of(self.root).open("ab") as file:
                file.write(self.lots.randbytes(self.lots.randrange(1, 5000)))
            self.seen["torn write"] += 1
        self.seen["killed"] += 1
        self._keeper = self._new_keeper()

    def _restart(self) -> None:
        """Of earlier lives than the last the kubelet has nothing."""
        live_attempts = self.pod.logs.live_attempts
        before = self.written[: len(self.written) - len(live_attempts[-1].text)].rstrip(b"\n")
        self._keeper.follow(source_of(self.pod))
        until(lambda: self.kept.startswith(before), "the life before is kept")
        self._at += NANO // 10
        self.pod.restart()
        self.seen["restarted"] += 1

    def _new_keeper(self) -> LogKeeper:
        return LogKeeper(self._port, self.root, pace=QUICK)


def play(seed: int, folder: Path) -> Round:
    print(f"seed {seed}")
    played = Round(seed, folder)
    played.play()
    return played


if __name__ == "__main__":
    play_all(play)
