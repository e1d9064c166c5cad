"""What is said of a job, and in which words?

Only fields that are named here are passed on: whatever else a job or an event carries stays with us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swell.kubectl.status_objects import StatusMessage
from swell.model.job import JobState, ResizeMode
from swell.model.launch import CAUSE_NOT_PLACED
from swell.model.reason import Code, Reason
from swell.store import EventRecord, Outline

Detail = dict[str, Any]
KUBECTL = "kubectl"  # where jobs came from that were not submitted
#: What to do is worth saying where waiting does not help; elsewhere it is nothing, with seconds that keep changing.
TO_DO = frozenset({Code.CANNOT_RUN_HERE, Code.HELD, Code.USER_LIMIT})


def annotations_of(job: Outline) -> dict[str, str | None]:
    """None: there is nothing to be said of that now."""
    return {
        "job-id": str(job.id),
        "state": str(job.state),
        "reason": None if job.reason_code is None else str(job.reason_code),
        "width": str(job.width) if job.width else None,
    }


def waiting_word(reason: Reason) -> StatusMessage:
    is_hopeless = reason.code is Code.CANNOT_RUN_HERE
    following = f"; {reason.next}" if reason.code in TO_DO and reason.next else ""
    return StatusMessage("Waiting", f"{reason.code}: {reason.message}{following}", is_hopeless)


def word_of(event: EventRecord, reason: Reason | None) -> StatusMessage | None:
    """`reason`: of the job now. None: it is nothing to a user of kubectl."""
    return _WORDS[event.kind](event.detail, reason) if is_told(event) else None


def _started(detail: Detail, _: Reason | None) -> StatusMessage:
    nodes = ", ".join(detail.get("nodes") or ())
    decided = f", not {detail['decided_width']} as decided before," if detail.get("decided_width") else ""
    said = f"attempt {detail.get('attempt')} at width {detail.get('width')}{decided} on {nodes}"
    return StatusMessage("Started", said)


def _asked(detail: Detail, _: Reason | None) -> StatusMessage:
    when = "at its next checkpoint" if detail.get("when") == ResizeMode.AT_CHECKPOINT else "at once"
    return StatusMessage("AskedToYield", f"{detail.get('cause')}, {when}")


def _yielded(detail: Detail, _: Reason | None) -> StatusMessage:
    attempt, cause = detail.get("attempt"), str(detail.get("cause") or "")
    if "left" in detail:
        return StatusMessage("Yielded", f"attempt {attempt} freed its resources; {detail['left']} tasks are left")
    what = "Resized" if detail.get("to_width") else "Preempted" if detail.get("room_for") else "Yielded"
    because = f": {cause}" if cause else ""
    return StatusMessage(what, f"attempt {attempt} at width {detail.get('width')} has ended{because}{_lost(detail)}")


def _retrying(detail: Detail, _: Reason | None) -> StatusMessage:
    attempt, problem = detail.get("attempt"), str(detail.get("problem") or "")
    said = f": {problem}" if problem else ""
    if detail.get("outcome") == CAUSE_NOT_PLACED:
        return StatusMessage("NotPlaced", f"attempt {attempt} could not be placed{said}", is_warning=True)
    if detail.get("outcome") == "failed":
        code = detail.get("exit_code")
        how = "and left no exit code" if code is None else f"with exit code {code}"
        return StatusMessage("Retrying", f"attempt {attempt} failed {how}{said}", True)
    return StatusMessage("Retrying", f"attempt {attempt} was lost ({detail.get('outcome')}){said}{_lost(detail)}", True)


def _lost(detail: Detail) -> str:
    lost = detail.get("lost_gpu_seconds") or 0
    return f"; {lost:.0f} GPU-seconds of work are lost" if lost >= 1 else ""


def _ended(detail: Detail, reason: Reason | None) -> StatusMessage:
    after = "" if detail.get("ran_s") is None else f" after {detail['ran_s']:.0f} s"
    why = "" if reason is None else f", {reason.code}: {reason.message}; {reason.next}"
    return StatusMessage("Ended", f"{detail.get('state')}{after}{why}", detail.get("state") == JobState.FAILED)


def _submitted(detail: Detail, _: Reason | None) -> StatusMessage:
    return StatusMessage("Noted", "; ".join(detail.get("notes") or ()), is_warning=True)


_WORDS: dict[str, Callable[[Detail, Reason | None], StatusMessage]] = {
    "Submitted": _submitted,
    "Started": _started,
    "AskedToYield": _asked,
    "Yielded": _yielded,
    "Retrying": _retrying,
    "Ended": _ended,
}


def is_told(event: EventRecord) -> bool:
    """What was submitted through us has told its notes to whoever did; who used kubectl hears of them here."""
    if event.kind == "Submitted":
        return event.origin == KUBECTL and bool(event.detail.get("notes"))
    return event.kind in _WORDS
