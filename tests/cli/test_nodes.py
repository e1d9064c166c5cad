"""What does `swell nodes` say of GPUs and limits?"""

from __future__ import annotations

from typing import Any

from swell.cli.nodes import gpu_lines, limit_lines


def gpu(name: str, **changes: Any) -> dict[str, Any]:
    known = {"id": name, "model": "A100", "memory_mib": 40960, "memory_mib_free": 40960, "outsiders_mib": 0}
    return {**known, "simulated": False, "job": None, "shares": [], **changes}


def test_on_one_machine_a_line_is_a_gpu_and_who_holds_it() -> None:
    nodes = [{"name": "here", "gpus": [gpu("GPU-a", job=7), gpu("GPU-b", outsiders_mib=3072)]}]
    assert gpu_lines(nodes) == [
        "  GPU-a  A100, 40960 MiB: job 7",
        "  GPU-b  A100, 40960 MiB: processes outside Swell 3072 MiB",
    ]


def test_on_a_cluster_a_line_has_its_node_and_no_memory_that_nobody_has_told() -> None:
    """Eight lines under the table did not say of which node they were, and spoke of processes with 1 of 0 MiB."""
    bare = {"model": "GPU", "memory_mib": 0, "memory_mib_free": 0}
    nodes = [
        {"name": "n1", "gpus": [gpu("gpu-0", **bare)]},
        {"name": "n2", "gpus": [gpu("gpu-0", **bare, outsiders_mib=1)]},
    ]
    assert gpu_lines(nodes) == ["  n1  gpu-0  GPU: free", "  n2  gpu-0  GPU: pods outside Swell"]


def test_what_tasks_are_not_kept_to_is_said_with_the_reason() -> None:
    why = "no permission to create control groups in /sys/fs/cgroup"
    missing = [{"limit": limit, "why": why} for limit in ("--memory", "--cpus")]
    no_root = {"limit": "GPUs of others", "why": "needs root"}
    here = {"name": "here", "not_enforced": [*missing, no_root]}
    assert limit_lines([here]) == [
        f"  not enforced, only counted: --memory, --cpus ({why})",
        "  not enforced, only counted: GPUs of others (needs root)",
    ]
    assert limit_lines([{"name": "n1"}, {"name": "n2", "not_enforced": [no_root]}]) == [
        "  n2  not enforced, only counted: GPUs of others (needs root)"
    ]
