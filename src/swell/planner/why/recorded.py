"""Why a job ended, or does not run although it has room: in words, from what was recorded then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from swell.model.member_loss import GIVEN_UP_BY
from swell.model.reason import Code, Evidence, Reason
from swell.planner.why.asking import Asking, asking

RecordedWords = Mapping[Code, Callable[[Evidence, Asking], tuple[str, str]]]

QUOTA = re.compile(r"exceeded quota: ([^,\s]+),")  # the API server's own words


def advice(said: object) -> str:
    """Empty: nobody speaks of a quota."""
    found = QUOTA.search(str(said))
    if found is None:
        return ""
    return (
        f"it starts when quota {found[1]!r} of its namespace has enough left: see what uses it (kubectl "
        f"describe resourcequota {found[1]} -n NAMESPACE), ask for a larger quota, or request less"
    )


def explain_record(code: Code, evidence: Evidence, kind: str = "", *, words: RecordedWords | None = None) -> Reason:
    """The reason of a job that holds room or has ended, from what was recorded then.

    `kind`: of the object it was written as; empty: in our own notation. `words`: see wording.py; None: of machines.
    """
    message, following = (words or RECORDED)[code](evidence, asking(kind))
    return Reason(code, message, evidence, following)


REGROUPED = "nothing to do; its pods that are left and wait are another job: swell ps -a"


def _cancelled(evidence: Evidence, _: Asking) -> tuple[str, str]:
    by = evidence.get("by") or "its owner"
    return f"cancelled by {by}", REGROUPED if by in GIVEN_UP_BY else "nothing to do; submit it again to run it"


def _object_deleted(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"its {evidence.get('object') or 'object'} was deleted with kubectl"
    return message, "nothing to do; submit it again to run it"


def _time_limit(evidence: Evidence, words: Asking) -> tuple[str, str]:
    message = f"it ran longer than its time limit of {_number(evidence, 'limit_s')} s and was stopped"
    return message, f"give it more time ({words.more_time})"


def _gpu_memory_overrun(evidence: Evidence, words: Asking) -> tuple[str, str]:
    used, reserved = _number(evidence, "used_mib"), _number(evidence, "reserved_mib")
    message = f"it used {used} MiB of the GPU it shared but had reserved {reserved} MiB, so it was stopped"
    enough = words.share.format(_number(evidence, "needs_mib"))
    return message, f"reserve more ({enough}), or let it continue with a warning"


def _gpu_idle(evidence: Evidence, _: Asking) -> tuple[str, str]:
    below, window = _number(evidence, "min_gpu_utilization"), _number(evidence, "window_s")
    message = f"none of its GPUs reached {below} % utilization within {window} s, so it was stopped"
    return message, f"see what it waited for (swell logs {evidence.get('job')}), or give it a longer window"


def _disk_limit(evidence: Evidence, _: Asking) -> tuple[str, str]:
    user, had, most = evidence.get("user"), _number(evidence, "disk_mib"), _number(evidence, "disk_mib_max")
    message = (
        f"{user} had {had} MiB of logs and checkpoints of at most {most} MiB, and this job, with "
        f"{_number(evidence, 'job_mib')} MiB, had the most of those that ran, so it was stopped"
    )
    advice = "keep fewer checkpoints, write less output, or keep checkpoints elsewhere (--checkpoints)"
    return message, f"{advice}; to make room, run: swell delete JOB (swell usage lists the largest)"


def _machine_restarted(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return f"node {evidence.get('node')} was restarted while the job was running", "submit it again"


def _start_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return (
        f"task {evidence.get('rank')} could not be started: {evidence.get('problem')}",
        "fix that and submit it again",
    )


def _image_unavailable(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return (
        f"the image of task {evidence.get('rank')} cannot be used: {evidence.get('problem')}",
        "fix the image name or the pull credentials, and submit it again",
    )


def _out_of_memory(evidence: Evidence, words: Asking) -> tuple[str, str]:
    limit = "it may" if evidence.get("memory_mib") is None else f"its limit of {_number(evidence, 'memory_mib')} MiB"
    had = f", and used {evidence['used_mib']} MiB" if _says_more(evidence) else ""
    message = f"task {evidence.get('rank')} was killed because it needed more memory than {limit}{had}"
    where = f"swell logs --rank {evidence.get('rank')} {evidence.get('job')}"
    return message, f"give it more memory ({words.more_memory}), or see what it did: {where}"


def _says_more(evidence: Evidence) -> bool:
    """What it had is worth a word where that is not the limit itself."""
    return "used_mib" in evidence and evidence["used_mib"] != evidence.get("memory_mib")


def _keeper_lost(evidence: Evidence, _: Asking) -> tuple[str, str]:
    who = f"task {evidence.get('rank')}"
    return (
        f"{who} ended, but the process that records its exit code was killed",
        "find out what killed it (dmesg shows the kernel's out-of-memory killer), then submit it again",
    )


def _task_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    code, failed, rank = evidence.get("exit_code"), evidence.get("failed"), evidence.get("rank")
    which = f"task {rank}" if failed == 1 else f"{failed} tasks, first task {rank},"
    how = f"ended with exit code {code}{_signal(code)}"
    if code is None:
        how = f"failed and left no exit code; {evidence.get('problem') or 'no reason was reported'}"
    return f"{which} {how}", f"swell logs --rank {rank} {evidence.get('job')}"


def _ended_early(evidence: Evidence, _: Asking) -> tuple[str, str]:
    done, total = _number(evidence, "done"), _number(evidence, "total")
    logs = f"swell logs {evidence.get('job')}"
    if evidence.get("trained") != 0 or not evidence.get("done"):
        message = f"it ended with exit code 0 after {done} of {total} epochs"
        return message, f"nothing to do if it was meant to stop early; otherwise see its output: {logs}"
    message = (
        f"it resumed from a checkpoint of {done} of {total} epochs, trained none of the remaining "
        "epochs, and ended with "
    )
    following = (
        f"see its output ({logs}); a trainer that counts the epochs of its checkpoint, such as "
        f"Lightning, needs the total of {total} (max_epochs=EPOCHS), not the remaining epochs (EPOCHS - "
        f"EPOCHS_DONE); fix that, then run: swell requeue {evidence.get('job')}"
    )
    return f"{message}exit code 0", following


def _not_recorded(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return (
        f"its state could not be recorded, so it was stopped: {evidence.get('problem')}",
        f"see what it did: swell logs {evidence.get('job')}; this is a bug in Swell, please report it",
    )


def _signal(code: object) -> str:
    names = {130: "SIGINT", 137: "SIGKILL", 139: "SIGSEGV: a crash", 134: "SIGABRT", 143: "SIGTERM"}
    notes = {127: "the command was not found", 126: "the command is not executable"}
    if not isinstance(code, int):
        return ""
    return f" ({names[code]})" if code in names else f" ({notes[code]})" if code in notes else ""


def _dependency_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"it was to start after job {evidence.get('after')} had succeeded, but that job {evidence.get('state')}"
    return message, "see why that job did not succeed; then submit this job again, or with --after JOB:end"


def _held(evidence: Evidence, _: Asking) -> tuple[str, str]:
    following = f"swell release {evidence.get('job')}"
    if evidence.get("object"):
        return f"its {evidence['object']} was suspended with kubectl", following
    return f"{evidence.get('by') or 'a user'} put it on hold", following


def _stopping(evidence: Evidence, _: Asking) -> tuple[str, str]:
    cause, grace_s = evidence.get("cause"), _number(evidence, "grace_s")
    message = f"it is being stopped ({cause}); its processes have {grace_s} s to end"
    if evidence.get("trouble"):
        return f"{message}; {evidence['trouble']}", "wait, or see the budget: kubectl get poddisruptionbudgets"
    return message, "wait"


def _starting(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"it has resources on {evidence.get('nodes')}; its processes are being started"
    if evidence.get("trouble"):
        following = advice(evidence["trouble"]) or "wait a moment; if this lasts, fix that, or cancel the job"
        return f"{message}; {evidence['trouble']}", following
    return message, "wait a moment"


def _task_trouble(evidence: Evidence, _: Asking) -> tuple[str, str]:
    trouble = evidence.get("trouble")
    following = f"see its output (swell logs {evidence.get('job')}), fix that and submit it again, or wait"
    return f"it is running, but not completely: {trouble}", advice(trouble) or following


def _lost_contact(evidence: Evidence, _: Asking) -> tuple[str, str]:
    node, silent_s = evidence.get("node"), _number(evidence, "silent_s")
    return (
        f"its node {node} has not been heard from for {silent_s} s; the job may still be running",
        "restart the worker there; it takes over the running tasks",
    )


def _not_ready(evidence: Evidence, _: Asking) -> tuple[str, str]:
    node, silent_s = evidence.get("node"), _number(evidence, "silent_s")
    return (
        f"its node {node} has not been ready for {silent_s} s; its pods may still be running",
        f"check the node (kubectl describe node {node}); if the cluster deletes its pods, the job is queued again",
    )


def _number(evidence: Evidence, key: str) -> str:
    value = evidence.get(key)
    return f"{value:.10g}" if isinstance(value, int | float) else "?"


RECORDED: RecordedWords = {
    Code.CANCELLED: _cancelled,
    Code.OBJECT_DELETED: _object_deleted,
    Code.TIME_LIMIT: _time_limit,
    Code.GPU_MEMORY_OVERRUN: _gpu_memory_overrun,
    Code.DISK_LIMIT: _disk_limit,
    Code.GPU_IDLE: _gpu_idle,
    Code.MACHINE_RESTARTED: _machine_restarted,
    Code.START_FAILED: _start_failed,
    Code.IMAGE_UNAVAILABLE: _image_unavailable,
    Code.OUT_OF_MEMORY: _out_of_memory,
    Code.KEEPER_LOST: _keeper_lost,
    Code.TASK_FAILED: _task_failed,
    Code.ENDED_EARLY: _ended_early,
    Code.NOT_RECORDED: _not_recorded,
    Code.DEPENDENCY_FAILED: _dependency_failed,
    Code.HELD: _held,
    Code.STOPPING: _stopping,
    Code.TASK_TROUBLE: _task_trouble,
    Code.STARTING: _starting,
    Code.WORKER_UNREACHABLE: _lost_contact,
}

#: The same where the nodes are a cluster's.
RECORDED_ON_CLUSTER: RecordedWords = {**RECORDED, Code.WORKER_UNREACHABLE: _not_ready}
