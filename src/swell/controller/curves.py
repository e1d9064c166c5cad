"""How fast were jobs of the same script at each width?

Jobs of one user with the same name and command are taken to be runs of one script (`script_of`): a sweep, or the same
training every night. What one of them has measured tells the others how width pays for them, so the second job of a
sweep need not try every width again. Only the shape of the curve is shared, not how long an epoch takes
(`throughput/blend.py`), and only within one user's jobs.

Of each script the last few jobs that measured something are remembered, whether they have ended or not. The memory is
bounded, and in the memory of one server: after a restart it is filled again from the jobs that are stored.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

from swell.model.job import JobId, JobSpec
from swell.model.training import EPOCH_S_MAX, SharedCurve, TrainingRecord
from swell.model.width import tasks_at
from swell.throughput import align
from swell.throughput.predict import EPOCH_S_MIN

SCRIPTS_MAX = 4000  # of all users; some tens of megabytes, 200 if every job has been at 64 widths
JOBS_MAX = 8  # of one script: the last that measured something
POINTS_MAX = 64  # of one job: widths beside numbers of nodes; a report each minute would make hundreds in a day
LENGTH_MAX = 1e6  # how often as long as the last one the mean epoch of a job may have been
CHANGE_MIN = 0.02  # a curve that differs by less is the same: everybody who shares it would be worked out anew
RESTORED_EACH = 50  # jobs of each user that ended last, and are read again after a restart, each with its whole spec

Points = tuple[tuple[int, int, float], ...]  #: width, nodes → seconds

NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
COUNTED_NAME = re.compile(r"[-_.]\d+$")
BATCH = re.compile(r"batch|^-*bs$|^-b$", re.IGNORECASE)


class ScriptKey(NamedTuple):
    """Which jobs run the same script."""

    owner: str  #: nobody learns from jobs of others
    name: str  #: without a number at its end
    digest: str  #: of all that they have in common


def script_of(spec: JobSpec, owner: str) -> ScriptKey | None:
    """None: it shares nothing. An array measures no widths.

    A number at the end of the name, as in `sweep-7`, and numbers in the command or in variables may differ: a sweep
    changes little else. Where an option is about the batch, its number must be the same, for it changes how width pays.
    """
    if spec.has_own_curve or spec.array is not None:
        return None
    name = COUNTED_NAME.sub("", spec.name)
    commands = [list(_words(role.command)) for role in spec.roles]
    variables = [list(_words(tuple(f"{key}={value}" for key, value in env))) for env in _variables(spec)]
    image = None if spec.container is None else spec.container.image
    same = (name, spec.kind, spec.workdir, commands, variables, tasks_at(spec, 1), spec.launcher, image)
    return ScriptKey(owner, name, hashlib.sha256(repr(same).encode()).hexdigest()[:32])


def _variables(spec: JobSpec) -> Iterator[tuple[tuple[str, str], ...]]:
    yield spec.env
    yield from (role.env for role in spec.roles)


def _words(command: tuple[str, ...]) -> Iterator[str]:
    option = ""
    for word in command:
        name, equals, value = word.rpartition("=")
        about = name or option
        may_differ = NUMBER.fullmatch(value) is not None and BATCH.search(about) is None
        yield f"{name}{equals}#" if may_differ else word
        option = word


class JobCurve(NamedTuple):
    """What one job has told."""

    epoch_s: Points
    epochs: float | None = None  #: how many it had; None: it has not done all of them
    length: float = 1.0  #: of an epoch, as the mean over all of them, beside one of `epoch_s`

    @classmethod
    def of(cls, training: TrainingRecord) -> JobCurve:
        """Without what cannot be: the numbers are a user's, and those of several jobs are multiplied."""
        measured = tuple(one for one in training.epoch_s()[:POINTS_MAX] if EPOCH_S_MIN <= one[2] <= EPOCH_S_MAX)
        length = training.mean_length
        if not training.is_complete or not training.counted or not 1 / LENGTH_MAX <= length <= LENGTH_MAX:
            return cls(measured)
        return cls(measured, training.epochs_done, length)

    def differs(self, before: JobCurve) -> bool:
        """In what jobs of other lengths share, by more than noise."""
        if (self.epochs is None) != (before.epochs is None):
            return True
        if [one[:2] for one in self.epoch_s] != [one[:2] for one in before.epoch_s]:
            return True
        pairs = zip(before.epoch_s, self.epoch_s, strict=True)
        ratios = [max(new, EPOCH_S_MIN) / max(old, EPOCH_S_MIN) for (_, _, old), (_, _, new) in pairs]
        return max(ratios) > (1 + CHANGE_MIN) * min(ratios)


@dataclass(slots=True)
class _Script:
    jobs: dict[JobId, JobCurve] = field(default_factory=dict)  #: who told last is the last one
    curve: SharedCurve | None = None  #: None: none has measured anything


class SharedCurves:
    """Measured speeds of all scripts."""

    def __init__(self) -> None:
        self._scripts: dict[ScriptKey, _Script] = {}  #: the one that was learned of last is the last one

    def of(self, script: ScriptKey | None) -> SharedCurve | None:
        """The curve of a script; the same object until it has changed enough to matter."""
        known = None if script is None else self._scripts.get(script)
        return None if known is None else known.curve

    def learn(self, script: ScriptKey | None, job: JobId, training: TrainingRecord) -> None:
        """What a job has measured so far. What may be warming up says nothing."""
        if script is None or not training.has_settled:
            return
        known = self._scripts.pop(script, None) or _Script()
        self._scripts[script] = known
        before, told = known.jobs.pop(job, None), JobCurve.of(training)
        if not told.epoch_s:
            return
        is_news = before is None or told.differs(before)
        known.jobs[job] = told if is_news or before is None else before
        while len(known.jobs) > JOBS_MAX:
            del known.jobs[next(iter(known.jobs))]
        if is_news:
            known.curve = merge(list(known.jobs.values()))
        if len(self._scripts) > SCRIPTS_MAX:
            self._forget_one()

    def _forget_one(self) -> None:
        """The oldest of the user who has the most: a million names of one cost nobody else anything."""
        counts = Counter(script.owner for script in self._scripts)
        owner = max(counts, key=lambda one: (counts[one], one))
        del self._scripts[next(script for script in self._scripts if script.owner == owner)]


def merge(members: list[JobCurve]) -> SharedCurve:
    """The mean of what several jobs have measured, each scaled to the one that has been at the most widths."""
    base = max(reversed(members), key=lambda one: len(one.epoch_s))
    found: dict[tuple[int, int], list[float]] = {}
    totals: list[tuple[float, float]] = []
    for one in members:
        factor = 1.0 if one is base else align(one.epoch_s, base.epoch_s)
        for width, nodes, seconds in one.epoch_s:
            found.setdefault((width, nodes), []).append(seconds / factor)
        if one.epochs is not None:
            totals.append((one.epochs, one.length * factor))
    epoch_s = tuple((width, nodes, fmean(each)) for (width, nodes), each in sorted(found.items()))
    if not totals:
        return SharedCurve(epoch_s)
    return SharedCurve(epoch_s, median(epochs for epochs, _ in totals), median(length for _, length in totals))
