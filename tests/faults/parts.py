"""Who plays the people and the programs of a round?

Simulated nodes run nothing, so what programs would say is said here: what a job that trains reports, and which GPU a
reservation has got. And people: they resize, hold and release their jobs whatever else happens, and come with something
urgent. Each is a thread with random numbers of its own, so that one seed is one plan.
"""

from __future__ import annotations

import base64
import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.api import Refused
from cluster.jobs import PODS
from swell.client import Client
from swell.client.connection import path
from swell.errors import SwellError
from swell_sdk.lastwords import spell
from swell_sdk.news import Checkpoint, Report

from .arena import ENDS_S, LOOK_S, Arena
from .cast import HELD, RESIZED, TRAINS, TRAINS_AT, URGENT, WIDTHS
from .history import PodSighting
from .workload import Case

SECRETS = "/api/v1/namespaces/default/secrets"
GPUS = 8
SLOW_S, FAST_S = 0.8, 0.1  # of an epoch, before and after the urgent one has ended
Part = Callable[[Arena, Case, random.Random], None]


def play_parts(arena: Arena, cases: Sequence[Case]) -> list[threading.Thread]:
    """They end when their jobs have ended, or are in nobody's hands any more."""
    threading.Thread(target=_reserve, args=(arena,), name="device plugin", daemon=True).start()
    threads = [threading.Thread(target=_play, args=(arena, case), name=case.name, daemon=True) for case in cases]
    for thread in threads:
        thread.start()
    return threads


def _play(arena: Arena, case: Case) -> None:
    lots = random.Random(f"{arena.seed} {case.name}")
    try:
        time.sleep(lots.uniform(0.0, 3.0))
        PARTS.get(case.name, _bring)(arena, case, lots)
    except Exception as error:  # noqa: BLE001  a thread that ends in silence would be missed much later
        arena.problems.append(f"{case}: {error!r}")


# -- people ------------------------------------------------------------------------------------------------------


def _bring(arena: Arena, case: Case, _: random.Random) -> None:
    arena.bring(case)


def _resize(arena: Arena, case: Case, lots: random.Random) -> None:
    """Again and again, and when nothing disturbs any more to its least width, at which it may end."""
    arena.bring(case)
    widths = WIDTHS[1:]
    while arena.until(case.name, is_running):
        width, widths = lots.choice(widths), WIDTHS
        arena.ask(case.name, lambda client, width=width: client.scale(case.name, width, now=True))
        if arena.is_calm.wait(lots.uniform(0.5, 5.0)):
            break
    arena.until(case.name, is_running)
    arena.ask(case.name, lambda client: client.scale(case.name, case.width, now=True))
    arena.until(case.name, lambda job: is_running(job) and job["width"] == case.width)
    arena.let_end(case)


def _hold(arena: Arena, case: Case, lots: random.Random) -> None:
    """As soon as it is there, or while it runs."""
    arena.bring(case)
    if lots.random() < 0.7:
        arena.until(case.name, is_running)
    time.sleep(lots.uniform(0.0, 2.0))
    arena.ask(case.name, lambda client: client.hold(case.name))
    if not arena.until(case.name, lambda job: job["state"] == "held") and case.name not in arena.taken:
        arena.problems.append(f"{case} was never held")
    time.sleep(lots.uniform(0.0, 4.0))
    arena.ask(case.name, lambda client: client.release(case.name))
    arena.let_end(case)


def _hurry(arena: Arena, case: Case, _: random.Random) -> None:
    """Comes when the one that trains has come back once: only then its restart is known not to be dear."""
    arena.until(TRAINS, lambda job: is_running(job) and job["attempts"] > 1)
    arena.bring(case)


def is_running(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "running")


# -- a job that trains -------------------------------------------------------------------------------------------


def _train(arena: Arena, case: Case, lots: random.Random) -> None:
    arena.bring(case)
    script = Script(arena, case)
    width = lots.choice(TRAINS_AT)
    until = time.monotonic() + ENDS_S
    is_scaled = False
    while not arena.has_ended(case.name) and time.monotonic() < until:
        script.step()
        if script.durable >= 2 and not is_scaled:
            arena.ask(case.name, lambda client: client.scale(case.name, width))
            is_scaled = True
        time.sleep(FAST_S if arena.has_ended(URGENT) else SLOW_S)


@dataclass
class Told:
    attempt: str
    token: str
    epochs_done: int


class Script:
    """What would run in the first of its pods, with the library: an epoch at each step, saved and reported."""

    def __init__(self, arena: Arena, case: Case) -> None:
        self._arena = arena
        self._case = case
        self._pod = ""
        self._told: Told | None = None
        self._is_ready = False
        self.saved = 0  # epochs, on its disk
        self.durable = 0  # epochs, as the server has confirmed

    def step(self) -> None:
        there = [one for one in self._arena.pods_of(self._case) if one.phase == "Running" and not one.is_deleting]
        first = next((one for one in there if one.rank == "master 0"), None)
        if first is None or len(there) < self._case.tasks:
            return
        if first.uid != self._pod:
            self._begin(first)
        if self._told is None or self._is_ready:
            return  # it waits to be stopped
        if self.saved < self._case.epochs:
            self.saved += 1
            self._report(self._told)
        else:
            self._arena.mark_to_end([one for one in there if one is not first])
            self._arena.mark_to_end([first], self._last_words(self._told))

    def _last_words(self, told: Told) -> str:
        """What the library leaves when nobody heard its last report; empty: somebody has."""
        return "" if self.durable == self.saved else spell(told.attempt, self._said()).decode()

    def _begin(self, pod: PodSighting) -> None:
        told = self._read(pod.attempt)
        if told is None:
            return
        if self._told is None or self._told.attempt != told.attempt:
            if not self.durable <= told.epochs_done <= self.saved:
                words = f"goes on from epoch {told.epochs_done}, but {self.durable} were durable and {self.saved} saved"
                self._arena.problems.append(f"{self._case} {words}")
            self.saved = told.epochs_done
        self._pod, self._told, self._is_ready = pod.uid, told, False

    def _read(self, attempt: str) -> Told | None:
        """None: it is of another attempt, or cannot be read now."""
        try:
            found = self._arena.cluster.api.get(SECRETS)["items"]
        except (OSError, Refused):
            return None
        for secret in found:
            data = {key: base64.b64decode(text).decode() for key, text in (secret.get("data") or {}).items()}
            if attempt and data.get("SWELL_ATTEMPT") == attempt:
                return Told(attempt, data["SWELL_TOKEN"], int(data["EPOCHS_DONE"]))
        return None

    def _report(self, told: Told) -> None:
        done = self.saved
        answer = self._send(told, self._said().to_document())
        if answer is None:
            return
        self.durable = done
        stop_after = answer["stop_after_epoch"]
        if stop_after is not None and done >= stop_after and done < self._case.epochs:
            self._is_ready = self._send(told, {"rank": 0, "ready_to_stop": True}) is not None

    def _said(self) -> Report:
        figures = (self.saved + 1, self.saved, None, False, False)
        saved = Checkpoint(self.saved, None, time.time())
        return Report(0, figures, epochs=((self.saved, SLOW_S),), checkpoint=saved)

    def _send(self, told: Told, body: dict[str, object]) -> dict[str, int | None] | None:
        """None: the server is away, or the attempt is over; the next report says all that this one does."""
        header = {"Authorization": f"Bearer {told.token}"}
        try:
            return Client(self._arena.state).connection.json(  # type: ignore[no-any-return]
                "POST", path("attempts", told.attempt, "report"), body, headers=header
            )
        except (SwellError, OSError):
            return None


# -- the device plugin -------------------------------------------------------------------------------------------


def _reserve(arena: Arena) -> None:
    """A reservation that runs says which GPU it has got: one that no other reservation has."""
    while not arena.is_closed.wait(LOOK_S):
        there = [one for one in arena.recorder.history.latest().values() if one.reserves and one.holds]
        for one in there:
            if one.phase != "Running" or one.gpu:
                continue
            names = (f"GPU-{one.node}-{number}" for number in range(GPUS))
            gpu = next((name for name in names if name not in [other.gpu for other in there]), "")
            if not gpu:
                arena.problems.append(f"{one.name} runs on {one.node}, where all GPUs are reserved")
                return
            note = {"metadata": {"uid": one.uid, "annotations": {"swell.dev/gpu": gpu, "swell.dev/gpu-total-mib": "0"}}}
            with contextlib.suppress(OSError, Refused):
                arena.cluster.api.patch(f"{PODS}/{one.name}", note)
            break  # the next look shows it


PARTS: dict[str, Part] = {RESIZED: _resize, HELD: _hold, URGENT: _hurry, TRAINS: _train}
