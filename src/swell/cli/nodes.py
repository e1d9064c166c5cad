"""`swell nodes`"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import output_option, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("nodes")
@output_option
@with_client
def command(client: Client, output: str) -> int:
    """List nodes, their free resources and the jobs on them; with -o wide, also who holds each GPU."""
    from swell.cli.printing import print_document, print_table, visible

    nodes = client.nodes()
    if output in ("json", "yaml"):
        print_document(nodes, output)
        return 0
    if not nodes:
        print("no nodes yet; the worker is probably still starting")
        return 0
    header = ["NODE", "STATE", "CPUS FREE", "MEMORY FREE", "GPUS FREE", "JOBS"]
    rows = [_row(node) for node in nodes]
    if output == "wide":
        header += ["CONTAINERS", "TAG", "GROUP", "BACKEND", "ID", "LOG"]
        rows = [[*row, *_wide(node)] for row, node in zip(rows, nodes, strict=True)]
    print_table(header, rows)
    for line in (*(gpu_lines(nodes) if output == "wide" else ()), *limit_lines(nodes)):
        print(visible(line))
    return 0


def limit_lines(nodes: list[dict[str, Any]]) -> list[str]:
    """The limits that a node does not enforce, grouped by reason."""
    lines = []
    for node in nodes:
        reasons: dict[str, list[str]] = {}
        for one in node.get("not_enforced", ()):  # a server of before does not say
            reasons.setdefault(one["why"], []).append(one["limit"])
        where = f"{node['name']}  " if len(nodes) > 1 else ""
        lines += [f"  {where}not enforced, only counted: {', '.join(names)} ({why})" for why, names in reasons.items()]
    return lines


def gpu_lines(nodes: list[dict[str, Any]]) -> list[str]:
    """For -o wide: one line per GPU, which names its node if there are several. A cluster may not report GPU memory."""
    lines = []
    for node in nodes:
        where = f"{node['name']}  " if len(nodes) > 1 else ""
        for gpu in node["gpus"]:
            memory = f", {gpu['memory_mib']} MiB" if gpu["memory_mib"] else ""
            label = " (simulated)" if gpu["simulated"] else ""
            lines.append(f"  {where}{gpu['id']}  {gpu['model']}{memory}{label}: {_used_by(gpu)}")
    return lines


def _state(node: dict[str, Any]) -> str:
    words = ["ready" if node["reachable"] else "unreachable"]
    words += [word for word in ("cordoned", "preemptible") if node.get(word)]  # a server of before says neither
    return ", ".join(words)


def _row(node: dict[str, Any]) -> list[str]:
    free = sum(_used_by(gpu) == "free" for gpu in node["gpus"])
    return [
        node["name"],
        _state(node),
        f"{node['cpus_free']:g} of {node['cpus']:g}",
        f"{node['memory_mib_free'] / 1024:.1f} of {node['memory_mib'] / 1024:.1f} GiB",
        f"{free} of {len(node['gpus'])}",
        ", ".join(map(str, node["jobs"])) or "-",
    ]


def _wide(node: dict[str, Any]) -> list[str]:
    """A server of before says nothing of workers."""
    backend = node.get("backend") or {}
    words = [node.get("tag"), node.get("group"), *(backend.get(name) for name in ("backend", "id", "log"))]
    return [node["container_runtime"] or "none", *(word or "-" for word in words)]


def _used_by(gpu: dict[str, Any]) -> str:
    parts = [f"job {gpu['job']}"] if gpu["job"] is not None else []
    shares = Counter((share["job"], share["memory_mib"]) for share in gpu["shares"])  # an array may have many
    parts += [f"job {job} {f'{count} x ' * (count > 1)}{mib} MiB" for (job, mib), count in shares.items()]
    if gpu["outsiders_mib"]:
        parts.append(
            f"processes outside Swell {gpu['outsiders_mib']} MiB" if gpu["memory_mib"] else "pods outside Swell"
        )
    if gpu["shares"]:
        parts.append(f"{gpu['memory_mib_free']} MiB free")
    return ", ".join(parts) or "free"
