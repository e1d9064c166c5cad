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
    """Machines, what is free on them, and who holds each GPU."""
    from swell.cli.printing import print_document, print_table

    nodes = client.nodes()
    if output in ("json", "yaml"):
        print_document(nodes, output)
        return 0
    if not nodes:
        print("no machine has offered itself yet; the worker is probably still starting")
        return 0
    header = ["NODE", "STATE", "CPUS FREE", "MEMORY FREE", "GPUS FREE", "JOBS"]
    rows = [_row(node) for node in nodes]
    if output == "wide":
        header.append("CONTAINERS")
        rows = [[*row, node["container_runtime"] or "none"] for row, node in zip(rows, nodes, strict=True)]
    print_table(header, rows)
    for node in nodes:
        for gpu in node["gpus"]:
            label = " (simulated)" if gpu["simulated"] else ""
            print(f"  {gpu['id']}  {gpu['model']}, {gpu['memory_mib']} MiB{label}: {_used_by(gpu)}")
    return 0


def _row(node: dict[str, Any]) -> list[str]:
    free = sum(_used_by(gpu) == "free" for gpu in node["gpus"])
    return [
        node["name"],
        "ready" if node["reachable"] else "out of reach",
        f"{node['cpus_free']:g} of {node['cpus']:g}",
        f"{node['memory_mib_free'] / 1024:.1f} of {node['memory_mib'] / 1024:.1f} GiB",
        f"{free} of {len(node['gpus'])}",
        ", ".join(map(str, node["jobs"])) or "-",
    ]


def _used_by(gpu: dict[str, Any]) -> str:
    parts = [f"job {gpu['job']}"] if gpu["job"] is not None else []
    shares = Counter((share["job"], share["memory_mib"]) for share in gpu["shares"])  # an array may have many
    parts += [f"job {job} {f'{count} x ' * (count > 1)}{mib} MiB" for (job, mib), count in shares.items()]
    if gpu["outsiders_mib"]:
        parts.append(f"processes outside Swell {gpu['outsiders_mib']} MiB")
    if gpu["shares"]:
        parts.append(f"{gpu['memory_mib_free']} MiB free")
    return ", ".join(parts) or "free"
