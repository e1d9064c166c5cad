"""What does a person mean by '8GiB', '1..4', '2h' or '0-99%8'?

Every parser raises `BadQuantity`, whose message says what was asked, what is true and what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal


class BadQuantity(ValueError):
    """A value that cannot be read; the message is for the user."""


class TooLong(BadQuantity):
    """A duration that is longer than any may be."""


SHOWN_MAX = 80  # a line of a terminal


def shown(text: object) -> str:
    """What a message repeats of somebody's text."""
    raw = str(text).strip()
    return repr(raw if len(raw) <= SHOWN_MAX else raw[: SHOWN_MAX - 1] + "…")


def number_of(count: float, noun: str) -> str:
    """(1, 'GPU') → '1 GPU'; (0.5, 'CPU') → '0.5 CPUs'."""
    return f"{count:.12g} {noun}" + ("" if count == 1 else "s")


MEMORY_UNITS_MIB = {
    "K": Decimal(1000) / (1024 * 1024),
    "M": Decimal(1000**2) / (1024 * 1024),
    "G": Decimal(1000**3) / (1024 * 1024),
    "T": Decimal(1000**4) / (1024 * 1024),
    "KI": Decimal(1) / 1024,
    "MI": Decimal(1),
    "GI": Decimal(1024),
    "TI": Decimal(1024 * 1024),
}
NUMBER = r"[0-9]+(?:\.[0-9]+)?"
REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
DURATION_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
ARRAY_TASKS_MAX = 1_000_000  # above this one row per task in the store stops being a good idea
COUNT_MAX = 100_000  # tasks or GPUs of one job; larger is a slip of the keyboard
MEMORY_MIB_MAX = 1024**3  # a pebibyte; the store's integers have 64 bits
GRACE_S_MAX = 86400.0  # the largest checkpoint is written in less
CHECKPOINT_EVERY_S_MIN = 10.0  # below that even a small model is saved for a good part of the time
DURATION_S_MAX = 100 * 365 * 86400.0  # longer is endless, and infinity is no number in JSON


def parse_number(text: object, *, low: float, high: float) -> float:
    """'2.5' → 2.5. Neither nan nor infinity is a number that anybody can mean."""
    raw = str(text).strip()
    if REAL.fullmatch(raw) is None:
        raise BadQuantity(f"{shown(raw)} is not a number; write one from {low:g} to {high:g}")
    if not low <= float(raw) <= high:
        raise BadQuantity(f"{shown(raw)} is not from {low:g} to {high:g}")
    return float(raw)


def parse_cpus(text: object) -> int:
    """'1.5' → 1500 thousandths; '500m' as Kubernetes writes it also works."""
    raw = str(text).strip()
    if REAL.fullmatch(raw.removesuffix("m")) is None:
        raise BadQuantity(f"{raw!r} is not a number of CPUs; write 2, 0.5 or 500m")
    milli = Decimal(raw[:-1]) if raw.endswith("m") else Decimal(raw) * 1000
    if milli < 0 or milli != milli.to_integral_value() or milli > COUNT_MAX * 1000:
        raise BadQuantity(f"{raw!r} is not a number of CPUs; write 2, 0.5 or 500m (thousandths are the least)")
    return int(milli)


def parse_memory(text: object) -> int:
    """'8GiB' → 8192 MiB, rounded up to whole MiB. A number without a unit is refused: 8 would be eight bytes."""
    raw = str(text).strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*((?:[KMGT]I?)?)B?", raw.upper())
    if match is None:
        raise BadQuantity(f"{raw!r} is not an amount of memory; write 512MiB, 8GiB or 1.5TiB")
    if not match[2]:
        raise BadQuantity(f"{raw!r} has no unit, so it would be bytes; write {match[1]}GiB or {match[1]}MiB")
    mib = Decimal(match[1]) * MEMORY_UNITS_MIB[match[2]]
    if mib > MEMORY_MIB_MAX:
        raise BadQuantity(f"{raw!r} is more memory than any machine has; write 512MiB, 8GiB or 1.5TiB")
    return int(mib.to_integral_value(rounding="ROUND_CEILING"))


def parse_duration(text: object) -> float:
    """'90s', '2h', '1h30m', '1:30:00', '1-12:00:00' → seconds. A number without a unit is refused: 30 what?"""
    return _duration(text, bare_s=None)


def parse_time_limit(text: object) -> float:
    """As `parse_duration`; a number without a unit is minutes, as Slurm reads its --time."""
    try:
        return _duration(text, bare_s=60)
    except TooLong as problem:
        raise BadQuantity(f"{problem}; leave it out for an endless job") from None


def parse_seconds(text: object) -> float:
    """As `parse_duration`; a number without a unit is seconds, as in Kubernetes' fields and in `timeout 90`."""
    return _duration(text, bare_s=1)


def parse_grace(text: object) -> float:
    """How long something that is stopped may take: as long as it does, nobody else has its room."""
    raw = str(text).strip()
    try:
        seconds = parse_seconds(raw)
    except TooLong:
        seconds = DURATION_S_MAX
    if seconds > GRACE_S_MAX:
        raise BadQuantity(f"{raw!r} is longer than a day; write at most 1d")
    return seconds


def parse_checkpoint_every(text: object) -> float:
    """As `parse_duration`; a save takes time from training, and a job that only saves gets nowhere."""
    seconds = parse_duration(text)
    if seconds < CHECKPOINT_EVERY_S_MIN:
        raise BadQuantity(f"{str(text).strip()!r} is shorter than {CHECKPOINT_EVERY_S_MIN:g} s; write for example 10m")
    return seconds


def _duration(text: object, *, bare_s: int | None) -> float:
    raw = str(text).strip()
    is_bare = re.fullmatch(NUMBER, raw) is not None
    if is_bare and bare_s is None:
        raise BadQuantity(f"{raw!r} has no unit; write 90s, 30m, 2h or 7d")
    seconds = float(raw) * (bare_s or 1) if is_bare else _clock(raw) if "-" in raw or ":" in raw else _units(raw)
    if seconds is None or seconds <= 0:
        raise BadQuantity(f"{raw!r} is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00")
    if seconds > DURATION_S_MAX:
        raise TooLong(f"{raw!r} is longer than a hundred years")
    return seconds


def _units(raw: str) -> float | None:
    parts = re.findall(rf"({NUMBER})([smhdw])", raw)
    if not parts or "".join(number + unit for number, unit in parts) != raw:
        return None
    return sum(float(number) * DURATION_UNITS_S[unit] for number, unit in parts)


def _clock(raw: str) -> float | None:
    """Slurm's forms: MM:SS, HH:MM:SS, D-HH, D-HH:MM and D-HH:MM:SS."""
    match = re.fullmatch(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?", raw)
    if match is None:
        return None
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    if third is None and days is None:
        return float((first or 0) * 60 + (second or 0))
    return float((days or 0) * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0))


def duration_text(seconds: float) -> str:
    """5400 → '1h30m', so that who reads it can write it again."""
    left, parts = seconds, []
    for unit in ("d", "h", "m"):
        count, left = divmod(left, DURATION_UNITS_S[unit])
        parts += [f"{count:g}{unit}"] if count else []
    return "".join([*parts, f"{left:g}s"] if left or not parts else parts)


def parse_range(text: object) -> tuple[int, int]:
    """'4' → (4, 4); '1..4' → (1, 4)."""
    raw = str(text).strip()
    match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", raw)
    if match is None:
        raise BadQuantity(f"{raw!r} is neither a count nor a range; write 2 or 1..4")
    if any(len(part.lstrip("0")) > 9 for part in match.groups(default="")):
        raise BadQuantity(f"{raw!r} is more than any job may have ({COUNT_MAX})")
    low, high = int(match[1]), int(match[2] or match[1])
    if high < low:
        raise BadQuantity(f"{raw!r}: the maximum {high} is below the minimum {low}; write {high}..{low}")
    if high > COUNT_MAX:
        raise BadQuantity(f"{raw!r}: {high} is more than any job may have ({COUNT_MAX})")
    return low, high


@dataclass(frozen=True, slots=True)
class IndexSet:
    """Array indices as written, kept as (first, last, step) runs: an array of a million is still one row."""

    runs: tuple[tuple[int, int, int], ...]

    def __len__(self) -> int:
        return sum(len(range(first, last + 1, step)) for first, last, step in self.runs)

    def __iter__(self):  # type: ignore[no-untyped-def]  # Iterator[int]; annotating costs an import in the CLI
        for first, last, step in self.runs:
            yield from range(first, last + 1, step)

    def __contains__(self, index: int) -> bool:
        return any(index in range(first, last + 1, step) for first, last, step in self.runs)

    @classmethod
    def parse(cls, text: str) -> IndexSet:
        """Back from `str`; an empty text is no index at all."""
        return cls(tuple(_run(part, text) for part in text.split(",") if part))

    def __str__(self) -> str:
        return ",".join(_run_text(*run) for run in self.runs)


def _run_text(first: int, last: int, step: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}" + (f":{step}" if step != 1 else "")


def parse_array(text: object) -> tuple[IndexSet, int]:
    """'0-99%8' → (the indices, 8 at once); without % all may run at once."""
    raw = str(text).strip()
    indices_text, _, at_once_text = raw.partition("%")
    runs = tuple(_run(part, raw) for part in indices_text.split(","))
    indices = IndexSet(runs)
    count = len(indices)
    if count > ARRAY_TASKS_MAX:
        raise BadQuantity(f"array {raw!r} has {count} tasks; at most {ARRAY_TASKS_MAX}: split it")
    if sum(1 for _ in runs) > 1 and len(set(indices)) != count:
        raise BadQuantity(f"array {raw!r} names an index twice; every index may appear once")
    if "%" not in raw:
        return indices, count
    if not re.fullmatch(r"[0-9]{1,9}", at_once_text) or int(at_once_text) < 1:
        raise BadQuantity(f"array {raw!r}: after % comes how many may run at once, 1 or more, as in 0-99%8")
    return indices, min(int(at_once_text), count)


def _run(part: str, raw: str) -> tuple[int, int, int]:
    match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?\s*", part)
    if match is None:
        raise BadQuantity(f"{raw!r} is not an array; write 0-99, 0-99%8 (8 at once), 1,3,5 or 0-100:10")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first:
        raise BadQuantity(f"array {raw!r}: the last index {last} is below the first {first}; write {last}-{first}")
    if step < 1:
        raise BadQuantity(f"array {raw!r}: the step must be 1 or more")
    return first, first + (last - first) // step * step, step
