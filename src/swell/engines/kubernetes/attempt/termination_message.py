"""What has a job said with its last breath?

A job that ends while we are away leaves its last report as the termination message of its container, which the API
server keeps with the end of its pod. It was written by the pod that ran the attempt, so it may say no more than that
pod could have reported, and is taken as if it had.
"""

from __future__ import annotations

import json
import logging
import posixpath

from swell.engines.kubernetes.attempt.wanted import AttemptSeen
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.engines.report_form import CheckpointIn, ReportIn
from swell.model.job import AttemptId
from swell.model.training import Checkpoint, Report

log = logging.getLogger(__name__)


def last_reports(attempt: AttemptId, seen: AttemptSeen) -> list[Report]:
    """Of an attempt that is over, oldest first: of a task that was begun again several pods may have left one."""
    left = [*seen.departed.values(), *(pod for _, pod in seen.pods)]
    reports = (_read(attempt, pod) for pod in left if pod.ended is not None and pod.ended.last_words)
    return [report for report in reports if report is not None]


def _read(attempt: AttemptId, pod: PodSeen) -> Report | None:
    """None: it is of another attempt, or no report."""
    assert pod.ended is not None
    try:
        document = json.loads(pod.ended.last_words)
        if document["swell_attempt"] != str(attempt):
            return None
        told = ReportIn.model_validate(document["report"])
        return told.of(attempt, _checkpoint(attempt, told.checkpoint, pod.ended.at))
    except (ValueError, KeyError, RecursionError) as error:  # also what pydantic raises; JSON may be nested too deep
        log.info("attempt %s: what pod %s has left is no report: %s", attempt, pod.name, error)
        return None


def _checkpoint(attempt: AttemptId, told: CheckpointIn | None, ended_at: float) -> Checkpoint | None:
    """The library tells where it lies as seen from the job's folder."""
    if told is None:
        return None
    path = None if told.path is None else posixpath.normpath(told.path)
    if path is not None and (path in (".", "..") or path.startswith(("/", "../")) or "\0" in path):
        raise ValueError(f"the checkpoint {path!r} is outside the job's folder")
    return told.of(attempt, path, ended_at)
