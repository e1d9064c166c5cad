"""Why a job ended, or does not run although it has room: in words, from what was recorded then."""

from __future__ import annotations

from collections.abc import Callable

from swell.model.reason import Code, Evidence, Reason
from swell.planner.asking import Asking, asking
from swell.planner.clusterquota import advice


def explain_record(code: Code, evidence: Evidence, kind: str = "", *, on_cluster: bool = False) -> Reason:
    """The reason of a job that holds room or has ended, from what was recorded then.

    `kind`: of the object it was written as; empty: in our own notation. `on_cluster`: its nodes are a cluster's.
    """
    words = {**RECORDED, **ON_CLUSTER} if on_cluster else RECORDED
    message, following = words[code](evidence, asking(kind))
    return Reason(code, message, evidence, following)


def _cancelled(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return f"cancelled by {evidence.get('by') or 'its owner'}", "nothing to do; submit it again to run it"


def _object_deleted(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"its {evidence.get('object') or 'object'} was deleted by somebody with kubectl"
    return message, "nothing to do; submit it again to run it"


def _time_limit(evidence: Evidence, words: Asking) -> tuple[str, str]:
    message = f"it ran longer than its time limit of {_number(evidence, 'limit_s')} s and was stopped"
    return message, f"give it more time ({words.more_time})"


def _gpu_memory_overrun(evidence: Evidence, words: Asking) -> tuple[str, str]:
    used, reserved = _number(evidence, "used_mib"), _number(evidence, "reserved_mib")
    message = f"it used {used} MiB of the GPU it shared and had reserved {reserved} MiB, and was stopped for that"
    enough = words.share.format(_number(evidence, "needs_mib"))
    return message, f"reserve more ({enough}), or let it go on with a warning"


def _gpu_idle(evidence: Evidence, _: Asking) -> tuple[str, str]:
    below, window = _number(evidence, "min_gpu_utilization"), _number(evidence, "window_s")
    message = f"none of its GPUs reached {below} % utilisation within {window} s, and it was stopped for that"
    return message, f"see what it waited for: swell logs {evidence.get('job')}; or give it a longer window"


def _machine_restarted(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return f"the machine {evidence.get('node')} was restarted while it ran", "submit it again"


def _start_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return (
        f"task {evidence.get('rank')} could not be started: {evidence.get('problem')}",
        "correct that and submit it again",
    )


def _image_unavailable(evidence: Evidence, _: Asking) -> tuple[str, str]:
    return (
        f"the image of task {evidence.get('rank')} cannot be used: {evidence.get('problem')}",
        "correct the image's name, or what it needs to be pulled with, and submit it again",
    )


def _out_of_memory(evidence: Evidence, words: Asking) -> tuple[str, str]:
    limit = "it may" if evidence.get("memory_mib") is None else f"its limit of {_number(evidence, 'memory_mib')} MiB"
    had = f", having {_number(evidence, 'used_mib')} MiB" if "used_mib" in evidence else ""
    message = f"task {evidence.get('rank')} was killed because it used more memory than {limit}{had}"
    where = f"swell logs --rank {evidence.get('rank')} {evidence.get('job')}"
    return message, f"give it more memory ({words.more_memory}), or see what it did: {where}"


def _keeper_lost(evidence: Evidence, _: Asking) -> tuple[str, str]:
    who = f"task {evidence.get('rank')}"
    return (
        f"{who} ended, but the process that records its exit code was killed from outside",
        "see what killed it (dmesg shows the kernel's out-of-memory killer), then submit it again",
    )


def _task_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    code, failed, rank = evidence.get("exit_code"), evidence.get("failed"), evidence.get("rank")
    which = f"task {rank}" if failed == 1 else f"{failed} tasks, first task {rank},"
    how = f"ended with exit code {code}{_signal(code)}"
    if code is None:
        how = f"failed and left no exit code; {evidence.get('problem') or 'nobody said why'}"
    return f"{which} {how}", f"swell logs --rank {rank} {evidence.get('job')}"


def _signal(code: object) -> str:
    names = {130: "SIGINT", 137: "SIGKILL", 139: "SIGSEGV: a crash", 134: "SIGABRT", 143: "SIGTERM"}
    notes = {127: "the command was not found", 126: "the command may not be executed"}
    if not isinstance(code, int):
        return ""
    return f" ({names[code]})" if code in names else f" ({notes[code]})" if code in notes else ""


def _dependency_failed(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"it was to start after job {evidence.get('after')} had succeeded, but that one {evidence.get('state')}"
    return message, "see why that one did not succeed; submit this one again, or with --after JOB:end"


def _held(evidence: Evidence, _: Asking) -> tuple[str, str]:
    following = f"swell release {evidence.get('job')}"
    if evidence.get("object"):
        return f"its {evidence['object']} was suspended by somebody else, with kubectl", following
    return f"{evidence.get('by') or 'somebody'} asked that it wait", following


def _stopping(evidence: Evidence, _: Asking) -> tuple[str, str]:
    cause, grace_s = evidence.get("cause"), _number(evidence, "grace_s")
    return f"it is being stopped ({cause}); its processes have {grace_s} s to end by themselves", "wait"


def _starting(evidence: Evidence, _: Asking) -> tuple[str, str]:
    message = f"room is given on {evidence.get('nodes')}; its processes are being started"
    if evidence.get("trouble"):
        following = advice(evidence["trouble"]) or "wait a moment; if it lasts, correct that, or cancel it"
        return f"{message}; {evidence['trouble']}", following
    return message, "wait a moment"


def _task_trouble(evidence: Evidence, _: Asking) -> tuple[str, str]:
    trouble = evidence.get("trouble")
    following = f"see what it did: swell logs {evidence.get('job')}; correct that and submit it again, or wait"
    return f"it runs, but not all of it: {trouble}", advice(trouble) or following


def _lost_contact(evidence: Evidence, _: Asking) -> tuple[str, str]:
    node, silent_s = evidence.get("node"), _number(evidence, "silent_s")
    return (
        f"its machine {node} has not been heard of for {silent_s} s; it may still run",
        "start the worker there again; it takes up what runs",
    )


def _not_ready(evidence: Evidence, _: Asking) -> tuple[str, str]:
    node, silent_s = evidence.get("node"), _number(evidence, "silent_s")
    return (
        f"its node {node} has not been ready for {silent_s} s; its pods may still run",
        f"see what is wrong there: kubectl describe node {node}; when the cluster gives its pods up, it lines up again",
    )


def _number(evidence: Evidence, key: str) -> str:
    value = evidence.get(key)
    return f"{value:.10g}" if isinstance(value, int | float) else "?"


RECORDED: dict[Code, Callable[[Evidence, Asking], tuple[str, str]]] = {
    Code.CANCELLED: _cancelled,
    Code.OBJECT_DELETED: _object_deleted,
    Code.TIME_LIMIT: _time_limit,
    Code.GPU_MEMORY_OVERRUN: _gpu_memory_overrun,
    Code.GPU_IDLE: _gpu_idle,
    Code.MACHINE_RESTARTED: _machine_restarted,
    Code.START_FAILED: _start_failed,
    Code.IMAGE_UNAVAILABLE: _image_unavailable,
    Code.OUT_OF_MEMORY: _out_of_memory,
    Code.KEEPER_LOST: _keeper_lost,
    Code.TASK_FAILED: _task_failed,
    Code.DEPENDENCY_FAILED: _dependency_failed,
    Code.HELD: _held,
    Code.STOPPING: _stopping,
    Code.TASK_TROUBLE: _task_trouble,
    Code.STARTING: _starting,
    Code.WORKER_UNREACHABLE: _lost_contact,
}

#: What is told in other words where the nodes are a cluster's.
ON_CLUSTER: dict[Code, Callable[[Evidence, Asking], tuple[str, str]]] = {Code.WORKER_UNREACHABLE: _not_ready}
