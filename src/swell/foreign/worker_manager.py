"""What does a command line of CodaLab's `cl-worker-manager` ask for, in the words of a pool?

One table of the options that all its backends share. An option that has no effect here says why, and is accepted: the
command lines are in people's scripts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swell.machine.worker_options import CHECK_IN_S_MAX
from swell.model.pool import POOL_NAME

NAME_SHOWN_MAX = 27  # characters of a pool's name before its digits
SIZE = re.compile(r"(?P<number>[0-9.]+)(?P<unit>[kmgtKMGT])")
SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
OTHER_EXECUTABLE = {"cl-worker": "swell"}  # CodaLab's own worker cannot join
CHECK_IN_S = 5  # of CodaLab's worker: one with --idle-seconds 0 left at the first check-in that brought no run
CACHE = "swell-cache"  # the folder that workers share, on a disk that they share


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
    needs: str = ""  #: the option without which it says nothing
    adapt: Callable[[str], tuple[str, str]] | None = None  #: what is said → what a pool is told, and why it differs


def pool_name(said: str) -> tuple[str, str]:
    """What is left out of a name that a pool cannot have, or cut off, is in four hexadecimal digits at its end."""
    if POOL_NAME.fullmatch(said):
        return said, ""
    digest = hashlib.sha256(said.encode()).hexdigest()[:4]
    shown = re.sub(r"[^a-z0-9]+", "-", said.lower())[:NAME_SHOWN_MAX].strip("-")
    return f"{shown}-{digest}".strip("-"), "pools have lower-case letters, digits and '-' in their names"


def _idle_seconds(said: str) -> tuple[str, str]:
    if not SECONDS.fullmatch(said) or float(said):
        return said, ""
    return str(CHECK_IN_S), "a worker that leaves at once gets no job; CodaLab's left at its next check-in"


def _check_in(said: str) -> tuple[str, str]:
    if not SECONDS.fullmatch(said) or float(said) <= CHECK_IN_S_MAX:
        return said, ""
    return f"{CHECK_IN_S_MAX:g}", "a worker that is silent for a minute counts as out of reach"


def _absolute(said: str) -> tuple[str, str]:
    whole = str(Path(said).expanduser().absolute())
    return (said, "") if said.startswith("/") else (whole, "below the folder that the manager was started in")


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
    ManagerOption("worker-work-dir-prefix", "folder_prefix", "work-dir-prefix", adapt=_absolute),
    ManagerOption("worker-max-work-dir-size", "folder_mib_max", "max-work-dir-size", is_size=True),
    ManagerOption(
        "worker-delete-work-dir-on-exit",
        why="each worker has a folder of its own under --worker-work-dir-prefix, and always removes it when it leaves",
        is_switch=True,
    ),
    ManagerOption("worker-idle-seconds", "idle_s", "idle-seconds", default="600", adapt=_idle_seconds),
    ManagerOption("worker-download-dependencies-max-retries", "fetch_retries_max", "max-fetch-retries", default="3"),
    ManagerOption(
        "worker-checkin-frequency-seconds",
        "check_in_s",
        "checkin-frequency-seconds",
        zero="0 is the default",
        adapt=_check_in,
    ),
    ManagerOption("worker-exit-after-num-runs", "runs_max", "exit-after-num-runs", zero="0 is no limit"),
    ManagerOption("worker-pass-down-termination", "passes_termination", "pass-down-termination", is_switch=True),
    ManagerOption("worker-exit-on-exception", "exits_on_exception", "exit-on-exception", is_switch=True),
    ManagerOption("worker-tag-exclusive", "tag_exclusive", "tag-exclusive", is_switch=True, needs="worker-tag"),
    ManagerOption("worker-group", "group", "group"),
    ManagerOption("worker-executable", "executable", "executable"),
    ManagerOption(
        "worker-shared-memory-size-gb",
        "container_options",
        "container-options",
        form="--shm-size={}g",
        zero="0 is the default",
    ),
    ManagerOption("worker-preemptible", "preemptible", "preemptible", is_switch=True),
)
#: What every backend has beside its own.
OF_EACH = (
    ManagerOption("cpus", "cpus_milli", "cpus", default="1"),
    ManagerOption("memory-mb", "memory_mib", "memory", default="2048", form="{}MiB"),
)


def default_name(kind: str, named_after: Iterable[str], told: Mapping[str, Any]) -> str:
    """Of the pool of a manager that was given none. Two managers side by side differ in their queue, job or tag, and so
    do the names.
    """
    said = [str(told[field]) for field in (*named_after, "tag") if told.get(field)]
    return pool_name("-".join((kind, *said)))[0]


@dataclass(frozen=True, slots=True)
class ManagerCache:
    """A folder for what workers fetch, on a disk that they share."""

    folder: str
    named_by: str  #: the option that names the disk
    why: str


def shared_cache(prefix: str | None, shared: Mapping[str, str], network: str | None, user: str) -> ManagerCache | None:
    """None: no option names such a disk.

    `shared`: folders of the workers that are on one → the option that said so. `network`: the type of the network file
    system that the prefix is on, as far as this machine knows the disks of the workers'.
    """
    kept_apart = "workers keep their own folders on a local disk"
    if prefix is not None and network is not None:
        why = f"{prefix} is on a network disk ({network}), which workers share; {kept_apart}"
        return ManagerCache(f"{prefix.rstrip('/')}/{user}-{CACHE}", "worker-work-dir-prefix", why)
    for folder in shared:
        if prefix is not None and Path(prefix).is_relative_to(folder):
            why = f"workers share {folder}; {kept_apart}"
            return ManagerCache(f"{prefix.rstrip('/')}/{CACHE}", "worker-work-dir-prefix", why)
    volumes = [(folder, option) for folder, option in shared.items() if option == "nfs-volume-name"]
    return next((ManagerCache(f"{folder}/{CACHE}", option, "") for folder, option in volumes), None)


def with_shared_cache(options: Iterable[ManagerOption], cache: ManagerCache | None) -> tuple[ManagerOption, ...]:
    """The same options, where what is fetched goes to that folder."""
    if cache is None:
        return tuple(options)
    also = {
        "nfs-volume-name": f"with the cache of all workers: --cache {cache.folder}",
        "worker-max-work-dir-size": "also of the cache that workers share: --max-cache-size",
    }
    found = (replace(option, why=also.get(option.name, option.why)) for option in options)
    named = ManagerOption(cache.named_by, "cache", "cache", why=cache.why, adapt=lambda _: (cache.folder, ""))
    return tuple(named if cache.why and option.name == cache.named_by else option for option in found)


def field_name(option: ManagerOption) -> str:
    """As a command line's parser calls it."""
    return option.name.replace("-", "_")


def in_our_words(options: Iterable[ManagerOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """By the fields of a pool. What was not said has CodaLab's default, where there is one."""
    found: dict[str, Any] = {}
    for option in options:
        said = given.get(field_name(option))
        said = option.default if said in (None, False, ()) else said
        if option.field and said is not None and not _why_nothing(option, said, given):
            found[option.field] = True if option.is_switch else _in_our_form(option, said)[0]
    return found


def _why_nothing(option: ManagerOption, said: Any, given: Mapping[str, Any]) -> str:
    """Why it has no effect; empty: it has one."""
    if not option.field:
        return option.why
    if option.needs and not given.get(option.needs.replace("-", "_")):
        return f"there is no --{option.needs}"
    return option.zero if said == "0" else ""


def _in_our_form(option: ManagerOption, said: str) -> tuple[str, str]:
    """And why it differs from what was said; empty: it does not, or the table says it."""
    said, why = (said, "") if option.adapt is None else option.adapt(said)
    text = option.form.format(OTHER_EXECUTABLE.get(said, said))
    size = SIZE.fullmatch(text) if option.is_size else None
    return text if size is None else f"{size['number']}{size['unit'].upper()}iB", why


def explain(options: Iterable[ManagerOption], given: Mapping[str, Any]) -> list[str]:
    """A line for each option that was said: what it means here."""
    lines = []
    for option in options:
        said = given.get(field_name(option))
        if said in (None, False, ()):
            continue
        if nothing := _why_nothing(option, said, given):
            lines.append(f"--{option.name}: no effect; {nothing}")
            continue
        text, why = ("", "") if option.is_switch else _in_our_form(option, said)
        value = " …" if option.is_secret else f" {text}" if text else ""
        why = "; ".join(filter(None, (why, option.why)))
        lines.append(f"--{option.name}: --{option.flag}{value}" + (f" ({why})" if why else ""))
    return lines
