"""What do Slurm's commands answer? Pure.

Our values from lines of text; what cannot be read raises `Unavailable`, because half an answer is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swell.errors import Rejected, SwellError, Unavailable
from swell.model.pool import pool_of
from swell.pools.backend import DETAIL_MAX, WORD_MAX, BackendWorker, WorkerState

SEPARATOR = "\x1f"  # in no name of ours, and in no sensible one of anybody's
SQUEUE_FIELDS = ("%A", "%j", "%T", "%r", "%k")  # job, name, state, reason, comment
SQUEUE_FORMAT = SEPARATOR.join(SQUEUE_FIELDS)
SACCT_FIELDS = ("JobIDRaw", "JobName", "State", "ExitCode", "Comment")
JOB_ID = re.compile(r"[0-9]{1,12}")
RESTARTS = re.compile(r"\bRestarts=([0-9]{1,9})\b")
EXIT = re.compile(r"\bExitCode=([0-9]{1,3}):([0-9]{1,3})\b")
REASON = re.compile(r"\bReason=(\S{1,200})")

_PENDING = "PENDING CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT RESV_DEL_HOLD"
_RUNNING = "RUNNING COMPLETING SUSPENDED STOPPED RESIZING SIGNALING STAGE_OUT"
_ENDED = "COMPLETED CANCELLED FAILED TIMEOUT PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY NODE_FAIL REVOKED"
STATES = {
    word: state
    for words, state in (
        (_PENDING, WorkerState.PENDING),
        (_RUNNING, WorkerState.RUNNING),  # one that completes is kept: Slurm may be about to start it again
        (_ENDED, WorkerState.ENDED),
    )
    for word in words.split()
}
OUT_OF_REACH = frozenset({"NODE_FAIL", "BOOT_FAIL"})  # Slurm has lost the node, and nobody saw the processes end
#: in what a command says when it may work the next time
TRANSIENT = (
    "unable to contact slurm controller",
    "slurm temporarily unable",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "connection reset",
    "zero bytes were transmitted",
    "resource temporarily unavailable",
    "slurmctld is not responding",
    "slurm_persist_conn",
    "in standby mode",
    "backup controller",
    "too many requests",
    "munge",
    "protocol authentication error",
)
#: in what scancel says of a job that needs no end
OVER = ("invalid job id", "already completing", "already completed", "already finished", "job is pending execution")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A line of squeue or sacct."""

    id: str
    name: str
    word: str
    reason: str
    comment: str
    exit: str = ""  #: code:signal; empty: not said


@dataclass(frozen=True, slots=True)
class SlurmEnding:
    words: str  #: empty: it does not say how
    restarts: int | None  #: how often Slurm has started it again; None: it does not say


NO_ENDING = SlurmEnding("", None)


def parse_squeue(text: str) -> tuple[SlurmJob, ...]:
    return tuple(_line(line, SEPARATOR, len(SQUEUE_FIELDS), "squeue") for line in _lines(text))


def parse_sacct(text: str) -> tuple[SlurmJob, ...]:
    rows = (_line(line, SEPARATOR, len(SACCT_FIELDS), "sacct") for line in _lines(text))
    return tuple(SlurmJob(row.id, row.name, row.word.partition(" ")[0], "", row.comment, row.reason) for row in rows)


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if line.strip())


def _line(line: str, separator: str, count: int, command: str) -> SlurmJob:
    parts = line.split(separator)
    if len(parts) != count or not JOB_ID.fullmatch(parts[0].strip()):
        raise Unavailable(f"asking slurm for workers: {command} has printed a line that cannot be read: {line[:200]!r}")
    return SlurmJob(*(part.strip() for part in parts))


def worker_of(
    job: SlurmJob, *, pool: str, comment: str, log: Path, ending: SlurmEnding, tracks_all: bool
) -> BackendWorker | None:
    """None: it is no worker of this pool. `tracks_all`: no process of a job escapes Slurm (control groups)."""
    if pool_of(job.name) != pool or job.comment not in (comment, ""):
        return None
    state = STATES.get(job.word, WorkerState.UNKNOWN)
    said = ending.words or ("" if job.reason in ("None", "(null)") else job.reason)
    is_seen = tracks_all and job.word not in OUT_OF_REACH and ending.restarts is not None
    return BackendWorker(
        job.name,
        job.id,
        state,
        job.word[:WORD_MAX],
        said[:DETAIL_MAX],
        exit_code(ending.words or job.exit) if state is WorkerState.ENDED else None,
        str(log / f"{job.name}-{job.id}.out") if state is not WorkerState.PENDING else "",
        is_proof=state is WorkerState.ENDED and is_seen,
        last_run=ending.restarts or 0,
    )


def parse_ending(text: str) -> SlurmEnding:
    """Of `scontrol --oneliner show job`."""
    reason, code, restarts = REASON.search(text), EXIT.search(text), RESTARTS.search(text)
    words = [reason[1]] if reason is not None and reason[1] != "None" else []
    words += [f"exit code {code[1]}" + (f", signal {code[2]}" if code[2] != "0" else "")] if code is not None else []
    return SlurmEnding(", ".join(words), None if restarts is None else int(restarts[1]))


def exit_code(said: str) -> int | None:
    """From "exit code 3, signal 9" or sacct's "3:9"; None: not said."""
    found = re.search(r"exit code ([0-9]{1,3})(?:, signal ([0-9]{1,3}))?", said) or re.fullmatch(
        r"([0-9]{1,3}):([0-9]{1,3})", said
    )
    if found is None:
        return None
    return 128 + int(found[2]) if found[2] and found[2] != "0" else int(found[1])


def parse_submitted(text: str) -> str:
    """Of `sbatch --parsable`: `12`, or `12;cluster`."""
    found = text.strip().partition(";")[0]
    if not JOB_ID.fullmatch(found):
        raise Unavailable(f"sbatch has answered {text.strip()[:200]!r}, which is no job id")
    return found


def parse_setting(text: str, name: str) -> str:
    """Of `scontrol show config`; empty: not there."""
    found = re.search(rf"^{re.escape(name)}\s*=\s*(\S+)", text, re.MULTILINE)
    return found[1] if found is not None else ""


def failure(doing: str, said: str, code: int) -> SwellError:
    """Of a command that has failed."""
    words = " ".join(said.split())[:DETAIL_MAX] or f"exit code {code}, and not a word"
    is_transient = any(phrase in said.lower() for phrase in TRANSIENT)
    return (Unavailable if is_transient else Rejected)(f"{doing}: {words}")


def is_over(said: str) -> bool:
    """Nothing is left to cancel."""
    return any(phrase in said.lower() for phrase in OVER)
