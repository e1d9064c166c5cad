"""What does a command line of CodaLab's `cl-worker-manager` ask for, in the words of a pool?

One table of the options that all its backends share. An option that has no effect here says why, and is accepted: the
command lines are in people's scripts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from swell.model.pool import POOL_NAME


@dataclass(frozen=True, slots=True)
class ManagerOption:
    name: str  #: without the dashes
    field: str = ""  #: of a pool's options, or of a worker's; empty: it has no effect
    flag: str = ""  #: the flag of `swell pool start` that says the same; empty: none does
    why: str = ""  #: why it has no effect, or where it differs
    default: str | None = None  #: CodaLab's; None: nothing is said
    is_switch: bool = False
    form: str = "{}"  #: of the value: `{}MiB`
    is_size: bool = False  #: 10g is 10 GiB to CodaLab
    is_secret: bool = False  #: the value is not repeated
    zero: str = ""  #: what 0 means, if it is as if nothing was said


NO_SESSION = "a token takes the place of a session (--token-file)"
COMMON = (
    ManagerOption("server", "server", "server"),
    ManagerOption("temp-session", why=NO_SESSION, is_switch=True),
    ManagerOption("min-workers", "workers_min", "min-workers", default="1"),
    ManagerOption("max-workers", "workers_max", "max-workers", default="10"),
    ManagerOption(
        "search", why="a pool serves the jobs that its workers could run; use --worker-tag-exclusive or --worker-group"
    ),
    ManagerOption("verbose", why="the pool always logs what it does", is_switch=True),
    ManagerOption("sleep-time", "sleep_s", "sleep-seconds", default="5"),
    ManagerOption("restart-after-seconds", why="a pool keeps nothing in memory that a restart would renew"),
    ManagerOption("no-prefilter", why="workers are started only for jobs that they could run", is_switch=True),
    ManagerOption(
        "min-seconds-between-workers",
        "launch_s",
        "launch-seconds",
        why="between two rounds; a round launches as many workers as are missing",
        default="60",
    ),
    ManagerOption("worker-tag", "tag", "tag"),
    ManagerOption("worker-work-dir-prefix", "folder_prefix", "work-dir-prefix"),
    ManagerOption("worker-max-work-dir-size", "folder_mib_max", "max-work-dir-size", is_size=True),
    ManagerOption(
        "worker-delete-work-dir-on-exit",
        why="each worker has a folder of its own under --worker-work-dir-prefix, and always removes it when it leaves",
        is_switch=True,
    ),
    ManagerOption("worker-idle-seconds", "idle_s", "idle-seconds", default="600"),
    ManagerOption("worker-download-dependencies-max-retries", "fetch_retries_max", "max-fetch-retries", default="3"),
    ManagerOption("worker-checkin-frequency-seconds", "check_in_s", "checkin-frequency-seconds"),
    ManagerOption("worker-exit-after-num-runs", "runs_max", "exit-after-num-runs", zero="0 is no limit"),
    ManagerOption("worker-pass-down-termination", "passes_termination", "pass-down-termination", is_switch=True),
    ManagerOption("worker-exit-on-exception", "exits_on_exception", "exit-on-exception", is_switch=True),
    ManagerOption("worker-tag-exclusive", "tag_exclusive", "tag-exclusive", is_switch=True),
    ManagerOption("worker-group", "group", "group"),
    ManagerOption("worker-executable", "executable", "executable"),
    ManagerOption("worker-shared-memory-size-gb", "container_options", "container-options", form="--shm-size={}g"),
    ManagerOption("worker-preemptible", "preemptible", "preemptible", is_switch=True),
)
#: What every backend has beside its own.
OF_EACH = (
    ManagerOption("cpus", "cpus_milli", "cpus", default="1"),
    ManagerOption("memory-mb", "memory_mib", "memory", default="2048", form="{}MiB"),
)
NAME_SHOWN_MAX = 27  # characters of a pool's name before its digits
SIZE = re.compile(r"(?P<number>[0-9.]+)(?P<unit>[kmgtKMGT])")
OTHER_EXECUTABLE = {"cl-worker": "swell"}  # CodaLab's own worker cannot join


def default_name(kind: str, named_after: Iterable[str], told: Mapping[str, Any]) -> str:
    """Of the pool of a manager that was given none. Two managers side by side differ in their queue, job or tag, and so
    do the names; what is left out of one, or cut off, is in four hexadecimal digits at its end.
    """
    said = [str(told[field]) for field in (*named_after, "tag") if told.get(field)]
    whole = "-".join((kind, *said))
    if POOL_NAME.fullmatch(whole):
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:4]
    shown = re.sub(r"[^a-z0-9]+", "-", whole.lower())[:NAME_SHOWN_MAX].strip("-")
    return f"{shown}-{digest}"


def field_name(option: ManagerOption) -> str:
    """As a command line's parser calls it."""
    return option.name.replace("-", "_")


def in_our_words(options: Iterable[ManagerOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """By the fields of a pool. What was not said has CodaLab's default, where there is one."""
    found: dict[str, Any] = {}
    for option in options:
        said = given.get(field_name(option))
        said = option.default if said in (None, False, ()) else said
        if option.field and said is not None and not _is_nothing(option, said):
            found[option.field] = True if option.is_switch else _in_our_form(option, said)
    return found


def _is_nothing(option: ManagerOption, said: str) -> bool:
    return bool(option.zero) and said == "0"


def _in_our_form(option: ManagerOption, said: str) -> str:
    text = option.form.format(OTHER_EXECUTABLE.get(said, said))
    size = SIZE.fullmatch(text) if option.is_size else None
    return text if size is None else f"{size['number']}{size['unit'].upper()}iB"


def explain(options: Iterable[ManagerOption], given: Mapping[str, Any]) -> list[str]:
    """A line for each option that was said: what it means here."""
    lines = []
    for option in options:
        said = given.get(field_name(option))
        if said in (None, False, ()):
            continue
        if not option.field or _is_nothing(option, said):
            lines.append(f"--{option.name}: no effect; {option.zero if option.field else option.why}")
            continue
        value = "" if option.is_switch else " " + ("…" if option.is_secret else _in_our_form(option, said))
        lines.append(f"--{option.name}: --{option.flag}{value}" + (f" ({option.why})" if option.why else ""))
    return lines
