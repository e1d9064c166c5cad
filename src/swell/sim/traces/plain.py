"""How is a workload in Swell's own format read?

CSV with a first line of names, or YAML with the same names: `jobs: [{submit_time: 0, gpus: 1..4, duration: 2h}, …]`.

    submit_time  when it is submitted: seconds, or 90m, 2h
    gpus         2, or 1..8 for a job that can be resized
    requested    GPUs that its user would ask for; the least of `gpus` without it
    duration     how long it trains on `requested` GPUs; or
    work         how long it trains on one GPU
    speedup      how much faster than on one GPU, as in 1:1 2:1.9 4:3.5; between two of them by a straight line;
                 without it GPUs^0.9
    memory       of each task, as in 8GiB       cpus      of each task
    priority     a whole number                 user      whose job it is       name      of the job
    epochs       how often it saves, 20 without it         resumes   no: it begins again when it is stopped
    script       jobs of one user with the same one tell each other how fast they are at each width
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import yaml

from swell.engines.simulated.behavior import Table
from swell.model.quantity import REAL, BadQuantity, parse_cpus, parse_memory, parse_seconds
from swell.model.resources import Resources
from swell.sim.traces.lines import TraceLine, TraceRow, parse_number, read_csv, read_text, refuse
from swell.sim.workload import SimJob, Workload

REQUIRED = ("submit_time", "gpus")
KNOWN = (
    *REQUIRED,
    *("requested", "duration", "work", "speedup", "memory", "cpus"),
    *("priority", "user", "name", "epochs", "resumes", "script"),
)
SECONDS = ("submit_time", "duration", "work")  # a number without a unit
WIDTH_MAX = 4096
EPOCHS_DEFAULT = 20
SCALING_EXPONENT = 0.9  # of the speed-up of a job that does not say


def read(path: Path) -> Workload:
    rows = list(_read_yaml(path) if path.suffix in (".yaml", ".yml") else read_csv(path, REQUIRED))
    if not rows:
        raise refuse(path, "there are no jobs in it")
    jobs = [read_job(row, number) for number, row in enumerate(rows, 1)]
    return Workload(path.stem, tuple(sorted(jobs, key=lambda job: job.submit_s)))


def read_job(row: TraceRow, number: int) -> SimJob:
    unknown = sorted(row.values.keys() - set(KNOWN))
    if unknown:
        raise row.line.refuse(f"there is no field {unknown[0]!r}; there are: {', '.join(KNOWN)}")
    low, high = _range(row)
    width = row.whole("requested", low, low=1)
    if not low <= width <= high:
        raise row.line.refuse(f"requested is {width}, and gpus is {low}..{high}")
    epochs = row.whole("epochs", EPOCHS_DEFAULT, low=1)
    speeds = _speeds(row, high)
    one_gpu_s = _one_gpu_s(row, speeds[width])
    return SimJob(
        row.text("name", f"job-{number}"),
        _quantity(row, "submit_time", parse_seconds),
        Table({(1, n): one_gpu_s / epochs / speed for n, speed in speeds.items()}),
        epochs,
        width,
        width_min=low,
        width_max=high,
        per_task=Resources(
            int(_quantity(row, "cpus", parse_cpus, "0.1")), int(_quantity(row, "memory", parse_memory, "0MiB")), 1
        ),
        priority=_priority(row),
        user=row.text("user", "user"),
        resumes=_is_yes(row, "resumes"),
        script=row.text("script", ""),
    )


def _range(row: TraceRow) -> tuple[int, int]:
    low, dots, high = row.text("gpus").partition("..")
    found = tuple(_width(row, text) for text in ((low, high) if dots else (low, low)))
    if found[0] > found[1]:
        raise row.line.refuse(f"gpus is {row.text('gpus')}; the first number must not be the larger one")
    return found[0], found[1]


def _width(row: TraceRow, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= WIDTH_MAX:
        raise row.line.refuse(f"gpus is {row.text('gpus')[:40]!r}; it must be as in 2 or 1..8, up to {WIDTH_MAX}")
    return int(text)


def _one_gpu_s(row: TraceRow, speed: float) -> float:
    given = [name for name in ("duration", "work") if row.text(name, "")]
    if len(given) != 1:
        raise row.line.refuse("it needs a duration or work, and not both")
    seconds = _quantity(row, given[0], parse_seconds)
    if seconds <= 0:
        raise row.line.refuse(f"{given[0]} is {seconds:g}; it must be more than 0")
    return seconds * (speed if given[0] == "duration" else 1.0)


def _speeds(row: TraceRow, high: int) -> dict[int, float]:
    """By width, relative to one GPU."""
    text = row.text("speedup", "")
    if not text:
        return {n: n**SCALING_EXPONENT for n in range(1, high + 1)}
    known = sorted(_speed(row, word) for word in text.replace(";", " ").split())
    if known[0][0] != 1:
        known.insert(0, (1, 1.0))
    return {n: _between(known, n) for n in range(1, high + 1)}


def _speed(row: TraceRow, word: str) -> tuple[int, float]:
    width, colon, speed = word.partition(":")
    if not colon or not width.isdigit() or not 1 <= int(width) <= WIDTH_MAX:
        raise row.line.refuse(f"speedup has {word[:40]!r}; it must be as in 1:1 2:1.9 4:3.5")
    return int(width), parse_number(row.line, "speedup", speed, low=1e-6)


def _between(known: list[tuple[int, float]], width: int) -> float:
    """On the straight line between two widths; beyond the last as fast as that."""
    for (low, slow), (high, fast) in pairwise(known):
        if low <= width <= high:
            return slow + (fast - slow) * (width - low) / (high - low) if high > low else fast
    return known[-1][1]


def _quantity(row: TraceRow, name: str, parse: Callable[[object], float], default: str | None = None) -> float:
    text = row.text(name, default)
    if name in SECONDS and REAL.fullmatch(text) is not None:  # 0 is a moment, and no duration
        return parse_number(row.line, name, text)
    try:
        return float(parse(text))
    except BadQuantity as problem:
        raise row.line.refuse(f"{name}: {problem}") from None


def _priority(row: TraceRow) -> int:
    found = parse_number(row.line, "priority", row.text("priority", "0"), low=-1e6)
    if found != int(found) or abs(found) > 1e6:
        raise row.line.refuse(f"priority is {found:g}; it must be a whole number up to 1000000")
    return int(found)


def _is_yes(row: TraceRow, name: str) -> bool:
    text = row.text(name, "yes").lower()
    if text not in ("yes", "no", "true", "false"):
        raise row.line.refuse(f"{name} is {text[:40]!r}; it must be yes or no")
    return text in ("yes", "true")


# -- YAML ----------------------------------------------------------------------------------------------------


def _read_yaml(path: Path) -> list[TraceRow]:
    try:
        document = yaml.compose(read_text(path), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = 0 if error.problem_mark is None else error.problem_mark.line
        raise TraceLine(path, line + 1, "").refuse(f"it is no YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise refuse(path, "it is no YAML that can be read") from error
    if not isinstance(document, yaml.MappingNode):
        raise refuse(path, "it must have a list `jobs:`")
    found = {key.value: value for key, value in document.value}
    jobs = found.get("jobs")
    if not isinstance(jobs, yaml.SequenceNode):
        raise refuse(path, "it must have a list `jobs:`")
    return [_yaml_row(path, node) for node in jobs.value]


def _yaml_row(path: Path, node: yaml.Node) -> TraceRow:
    line = TraceLine(path, node.start_mark.line + 1, "")
    if not isinstance(node, yaml.MappingNode):
        raise line.refuse("a job must be a table of fields")
    values: dict[str, str] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            raise TraceLine(path, value.start_mark.line + 1, "").refuse("a field must have one value")
        values[key.value] = value.value
    missing = [name for name in REQUIRED if name not in values]
    if missing:
        raise line.refuse(f"the field {missing[0]!r} is missing")
    return TraceRow(line, values)
