"""Where does a checkpoint that a job reports really lie?

What lies outside the job's folder, or, where we can look, is not there, is none to resume from. On a box we look with
the user's own eyes, in a process of theirs. They can stop it, so it has little time, and keeps only threads that are
their share.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from swell.api.services import Services
from swell.engines.report_form import CheckpointIn
from swell.errors import Rejected, Unavailable
from swell.machine.keyring import new_keyring
from swell.machine.processes import as_user, ready
from swell.machine.users import user_of_job
from swell.model.job import AttemptId
from swell.model.training import Checkpoint
from swell.store import JobRecord

LOOK_S_MAX = 5.0  # a folder that answers at all answers within a second
LOOK_BYTES_MAX = 3 * 4096  # two paths (PATH_MAX of Linux)
REAP_S = 1.0  # a process in the hands of a file system that hangs does not even end when it is killed

Found = tuple[Path, Path]  #: where the job's folder and the checkpoint really are


async def find_checkpoint(services: Services, attempt: AttemptId, told: CheckpointIn) -> Checkpoint:
    job = await services.read(_owner(services, attempt), lambda: services.store.job(attempt.job))
    path = None
    if told.path is not None:
        given = told.path
        path = await services.pools.checkpoints.run(job.owner, lambda: _path_inside(services, job, given))
    return told.of(attempt, path, services.now())


def _owner(services: Services, attempt: AttemptId) -> str:
    return services.controller.owner(attempt.job) or str(attempt)


def _path_inside(services: Services, job: JobRecord, told: str) -> str:
    """Relative to the job's folder."""
    if "\0" in told:
        raise Rejected("the checkpoint's path contains a null character, which a file name cannot have")
    given = Path(services.checkpoints(job))
    if services.cluster is not None:  # that folder is inside pods
        found: Found | None = given, Path(os.path.normpath(given / told))
    else:
        found = _look(given, told) if job.uid is None else _look_as_user(job, given, told)
    if found is None:
        raise Rejected(f"the checkpoint {told!r} does not exist; make it durable first, then report it")
    folder, checkpoint = found
    if not checkpoint.is_relative_to(folder) or checkpoint == folder:
        raise Rejected(f"the checkpoint {told!r} is outside the job's folder {folder}; write it there")
    return str(checkpoint.relative_to(folder))


def _look(folder: Path, told: str) -> Found | None:
    """None: there is no such checkpoint."""
    folder = Path(os.path.realpath(folder))
    found = Path(os.path.realpath(folder / told))
    if found.is_relative_to(folder) and not os.path.exists(found):  # noqa: PTH110  Path.exists raises for long names
        return None
    return folder, found


def _look_as_user(job: JobRecord, folder: Path, told: str) -> Found | None:
    """The same with the user's eyes: root's would tell what lies in folders that the user may not enter."""
    user = None if job.uid is None else user_of_job(job.owner, job.uid)
    if user is None:
        return None
    argv = ["realpath", "--canonicalize-existing", "--zero", "--", str(folder), str(folder / told)]
    try:
        with new_keyring():
            child = subprocess.Popen(
                argv,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                **as_user(user),
            )
    except (OSError, ValueError):
        return None
    said = _output(child)
    if said is None:
        raise Unavailable(
            f"the checkpoint {told!r} could not be looked at within {LOOK_S_MAX:g} s: its file system hangs, or the "
            "process that looks (realpath) was stopped; report it again"
        )
    return parse_found(said)


def _output(child: subprocess.Popen[bytes]) -> bytes | None:
    """All that it says, bounded; it is the user's own process, which may say anything. None: it did not end in time."""
    assert child.stdout is not None
    until, said = time.monotonic() + LOOK_S_MAX, b""
    with child.stdout:
        while len(said) <= LOOK_BYTES_MAX:
            left = until - time.monotonic()
            if left <= 0 or not ready(left, child.stdout.fileno()):
                _end(child)
                return None
            piece = os.read(child.stdout.fileno(), LOOK_BYTES_MAX)
            if not piece:
                break
            said += piece
    _end(child)
    return said


def _end(child: subprocess.Popen[bytes]) -> None:
    """Whatever it is at; one that cannot end is left to be reaped later."""
    child.kill()
    try:
        child.wait(REAP_S)
    except subprocess.TimeoutExpired:
        return


def parse_found(said: bytes) -> Found | None:
    """None: one of the two does not exist."""
    parts = said.split(b"\0")
    if len(parts) != 3 or not parts[0].startswith(b"/") or not parts[1].startswith(b"/"):
        return None
    return Path(os.fsdecode(parts[0])), Path(os.fsdecode(parts[1]))
