"""Where does a job report, with what token, and what is it told to go on from?

A token is an HMAC over attempt and expiry: nothing of it is stored, it dies with its attempt, and it can do nothing but
report on it. It is the same whenever it is made, so a restarted server knows the jobs that run.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import join

from swell.model.attempt import Resume
from swell.model.job import AttemptId, JobSpec
from swell.store import AttemptRecord

LASTS_S = 365 * 86400.0  # longer than any attempt; a stolen one is of no use after its attempt anyway
HEARTBEAT_STEPS = 100  # after so many steps KubeProfiler sends what it measured
TOKEN_PREFIX = "swj"  # noqa: S105  what every job token begins with


@dataclass(frozen=True, slots=True)
class Reporting:
    url: str
    secret_of: Callable[[float], str]  #: of an attempt that was made then (jobsecrets.py)
    checkpoints: str  #: folder that holds one folder per job
    fingerprint: str = ""  #: of the server's own certificate, which nobody vouches for; empty: none is needed
    socket: str = ""  #: what jobs report through instead of the address, which anybody could take; empty: nobody can

    def folder(self, job: int, spec_folder: str | None) -> str:
        return spec_folder if spec_folder is not None else join(self.checkpoints, str(job))

    def variables(self, spec: JobSpec, attempt: AttemptRecord) -> tuple[tuple[str, str], ...]:
        """What only this attempt is told. docs/reports.md has the table."""
        name = AttemptId(attempt.job_id, attempt.number)
        folder = self.folder(attempt.job_id, spec.checkpoints)
        path = attempt.resume.checkpoint
        token = make_token(self.secret_of(attempt.created_at), name, attempt.created_at + LASTS_S)
        told = {
            "SWELL_URL": self.url,
            "SWELL_TOKEN": token,
            "SWELL_DOOR": f"{self.url}/d/{token}",
            "SWELL_CHECKPOINTS": folder,
            "SWELL_CHECKPOINT": "" if path is None else str(PurePosixPath(folder) / path),
            "SWELL_WIDTH": str(attempt.width),
            "SWELL_GRACE_S": f"{spec.grace_s:g}",
            "EPOCHS_DONE": f"{int(attempt.resume.epochs_done)}",
            "HEARTBEAT_FREQ": str(HEARTBEAT_STEPS),
            "KUBEFLOW_TRAINER_SERVER_URL": f"{self.url}/api/v1/attempts/{name}/trainer-status",
        }
        if self.socket:
            told["SWELL_JOBS_SOCKET"] = self.socket
        if self.fingerprint:
            told["SWELL_URL_FINGERPRINT"] = self.fingerprint
        if spec.epochs is not None:
            told["EPOCHS_TO_BE_DONE"] = str(spec.epochs)
        if spec.saves_every_s is not None:
            told["SWELL_CHECKPOINT_EVERY_S"] = f"{spec.saves_every_s:g}"
        told |= _inside_epoch(attempt.resume)
        return tuple(sorted(told.items()))


def _inside_epoch(resume: Resume) -> dict[str, str]:
    """How far into its first epoch the attempt begins; nothing where that is at its beginning."""
    if not resume.steps_done:
        return {}
    told = {
        "SWELL_STEPS_DONE": resume.steps_done,
        "SWELL_STEPS_TOTAL": resume.steps_total,
        "SWELL_SAMPLES_DONE": resume.samples_done,
    }
    return {name: str(number) for name, number in told.items() if number is not None}


def make_token(secret: str, attempt: AttemptId, expires_at: float) -> str:
    body = f"{TOKEN_PREFIX}.{attempt.job}.{attempt.number}.{int(expires_at)}"
    return f"{body}.{hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()}"


def read_token(secret: str, token: str, now: float) -> AttemptId | None:
    """Whose it is; None: forged, broken or expired."""
    body, _, signature = token.rpartition(".")
    expected = hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    prefix, job, number, expires_at = body.split(".")
    if prefix != TOKEN_PREFIX or now > int(expires_at):
        return None
    return AttemptId(int(job), int(number))
