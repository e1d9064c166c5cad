"""Which options do the `#SBATCH` lines of a batch script give?

As sbatch reads them: only the lines before the first command count, `--name=value`, `--name value` and `-n value` all
mean the same, and of an option that is given twice the last counts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from swell.errors import Rejected
from swell.manifests.fields import did_you_mean, shorten

MARK = "#SBATCH"
SHORT = {
    "A": "account",
    "a": "array",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "G": "gpus",
    "H": "hold",
    "i": "input",
    "J": "job-name",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "Q": "quiet",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
}
USED = (
    "array",
    "chdir",
    "cpus-per-task",
    "dependency",
    "error",
    "export",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
    "hold",
    "input",
    "job-name",
    "mail-type",
    "mail-user",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "open-mode",
    "output",
    "signal",
    "time",
)
PLACES = "Swell places jobs by what they ask for"
ONE_NODE = "all tasks run on one machine"
#: no effect here, and why
IGNORED = {
    "account": "there are no accounts; fair share is per user",
    "acctg-freq": "nothing is sampled for accounting",
    "comment": "it is for Slurm's accounting",
    "constraint": f"machines have no features; {PLACES}",
    "contiguous": ONE_NODE,
    "cores-per-socket": PLACES,
    "distribution": ONE_NODE,
    "exclude": PLACES,
    "exclusive": "a job has the CPUs, memory and GPUs that it asks for, and others may have the rest",
    "get-user-env": "a job has the environment that it is submitted from",
    "gpu-bind": "every task sees the GPUs of its part",
    "hint": PLACES,
    "kill-on-invalid-dep": "a job whose dependency failed fails with DependencyFailed",
    "mem-bind": PLACES,
    "nice": "write --priority of swell run, or priority in a job file",
    "no-requeue": "a job is started again only when it is preempted or its machine is lost",
    "nodelist": PLACES,
    "ntasks-per-core": PLACES,
    "ntasks-per-gpu": "write --ntasks",
    "ntasks-per-socket": PLACES,
    "oversubscribe": PLACES,
    "parsable": "swell submit prints only the id",
    "partition": f"there are no partitions; {PLACES}",
    "priority": "write priority in a job file, or swell run --priority",
    "propagate": "a job has the limits of its user",
    "qos": "there are no qualities of service",
    "quiet": "it is for sbatch",
    "requeue": "a job that is preempted, or whose machine is lost, comes back anyway",
    "reservation": "there are no reservations",
    "sockets-per-node": PLACES,
    "threads-per-core": PLACES,
    "time-min": "a job has one time limit",
    "tmp": "disk space is not counted",
    "use-min-nodes": ONE_NODE,
    "verbose": "it is for sbatch",
    "wait": "write swell submit --wait",
    "wait-all-nodes": ONE_NODE,
    "wckey": "it is for Slurm's accounting",
}
#: would mean something else if it were ignored
REFUSED = {
    "bb": "asks for a burst buffer, and there is none; copy the data in the script",
    "bbf": "asks for a burst buffer, and there is none; copy the data in the script",
    "begin": "delays the start, which Swell does not; submit the job then, or `swell hold` it and `swell release` it",
    "clusters": "names another cluster; log in to its server with `swell login`",
    "container": "names an OCI bundle; write a job file with image",
    "deadline": "is a moment by which it must have ended, which Swell does not keep; give --time",
    "gid": "asks for another group; submit it as a user who is in that group",
    "licenses": "counts licences, which Swell does not; limit an array with %N instead",
    "network": "asks for a network switch, which Swell does not know",
    "uid": "asks for another user; submit it as that user",
    "wrap": "is for sbatch's own command line; write the command into the script",
}
FLAGS = frozenset(
    {"contiguous", "exclusive", "get-user-env", "hold", "no-requeue", "oversubscribe", "parsable", "quiet", "requeue"}
    | {"use-min-nodes", "verbose", "wait"}
)
#: of each, the options that are given beside the script replace all that are in it
ALTERNATIVES = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"gpus", "gpus-per-node", "gpus-per-task", "gres"}),
)
BESIDE = 0  # the line of an option that is given beside the script
LINES_MAX = 1000  # options of one script; more are no options


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it is written."""

    value: str
    line: int

    def refused(self, name: str, why: str) -> Rejected:
        return Rejected(f"{_where(self.line)}: --{name}{f'={shorten(self.value)}' if self.value else ''} {why}")


@dataclass(frozen=True, slots=True)
class Options:
    given: dict[str, Given]
    notes: tuple[str, ...]  #: what has no effect, in words

    def text(self, name: str) -> str | None:
        found = self.given.get(name)
        return None if found is None else found.value

    def refused(self, name: str, why: str) -> Rejected:
        return self.given[name].refused(name, why)


def _where(line: int) -> str:
    return "--sbatch" if line == BESIDE else f"line {line}"


def read_options(script: str, beside: str = "") -> Options:
    """`beside`: options in one text, which override those of the script."""
    given: dict[str, Given] = {}
    notes: list[str] = []
    for number, line, counts in _marked(script):
        if not counts:
            notes.append(f"line {number}: {MARK} after the first command has no effect, as for sbatch")
            continue
        given |= _used(line, number, notes)
    over = _used(beside, BESIDE, notes)
    replaced = {name for names in ALTERNATIVES if names & over.keys() for name in names}
    given = {name: found for name, found in given.items() if name not in replaced} | over
    return Options(given, tuple(dict.fromkeys(notes)))


def _used(text: str, line: int, notes: list[str]) -> dict[str, Given]:
    given = {}
    for name, found in _options(text, line):
        if name in REFUSED:
            raise found.refused(name, REFUSED[name])
        if name in IGNORED:
            notes.append(f"{_where(line)}: --{name} has no effect: {IGNORED[name]}")
        else:
            given[name] = found
    return given


def _marked(script: str) -> Iterator[tuple[int, str, bool]]:
    """Lines with options, and whether they stand before the first command."""
    counts, found = True, 0
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith(MARK) and not line[len(MARK) :].strip(" \t").startswith("="):
            found += 1
            if found > LINES_MAX:
                raise Rejected(f"line {number}: the script has more than {LINES_MAX} lines of options")
            yield number, line[len(MARK) :], counts
        elif line.strip() and not line.lstrip().startswith("#"):
            counts = False


def _options(text: str, line: int) -> Iterator[tuple[str, Given]]:
    words = _words(text, line)
    if words[:1] == ["hetjob"] or ":" in words:
        raise Rejected(f"{_where(line)}: a heterogeneous job has several parts; write a job file with roles")
    while words:
        word = words.pop(0)
        name, equals, value = _name(word, line)
        if not equals and name not in FLAGS:
            if not words or words[0].startswith("--"):
                raise Rejected(f"{_where(line)}: {shorten(word)} has no value; write {shorten(word)}=VALUE")
            value = words.pop(0)
        yield name, Given(value, line)


def _words(text: str, line: int) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as problem:
        raise Rejected(
            f"{_where(line)}: {MARK} cannot be split into words: {problem}; close the quotation mark"
        ) from None


def _name(word: str, line: int) -> tuple[str, bool, str]:
    """The long name, whether a value comes with it, and that."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        known = (*USED, *IGNORED, *REFUSED)
        if name not in known:
            raise Rejected(
                f"{_where(line)}: sbatch has no option --{shorten(name)} here{did_you_mean(name, list(USED))}"
            )
        return name, bool(equals), value
    if not word.startswith("-") or word[1:2] not in SHORT:
        raise Rejected(f"{_where(line)}: {shorten(word)!r} is no option of sbatch; write --name=value")
    return SHORT[word[1]], len(word) > 2, word[2:]
