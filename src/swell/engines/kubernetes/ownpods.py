"""What do pods look like that we make ourselves, one for each rank?

Of a Pod's manifest there is one. Of a gang the manifest is a list: a pod for each role, and the Service by whose name
the ranks reach each other.
"""

from __future__ import annotations

from typing import Any

from swell.engines.kubernetes.objects import Filling, without_server_fields
from swell.engines.kubernetes.picture import RANK
from swell.engines.kubernetes.template import fill_pod
from swell.engines.kubernetes.wanted import Wanted

Document = dict[str, Any]
MASTER_PORT = 29500  # what torchrun takes when nothing is said; a pod has all ports for itself


def items(manifest: Document, kind: str) -> list[Document]:
    found = manifest["items"] if manifest["kind"] == "List" else [manifest]
    return [one for one in found if one["kind"] == kind]


def make_pod(manifest: Document, base: str, rank: int, wanted: Wanted, filling: Filling) -> Document:
    """`base` is the job's name in the cluster; the ranks of a gang are BASE-0, BASE-1 …"""
    role = wanted.places[rank].role
    given = without_server_fields(items(manifest, "Pod")[role])
    metadata = filling.marked(given["metadata"])
    metadata["annotations"] = {**metadata["annotations"], RANK: str(rank)}
    spec = fill_pod(given["spec"], filling.roles[role], filling)
    if manifest["kind"] == "List":
        metadata["name"] = f"{base}-{rank}"
        spec |= {"hostname": f"{base}-{rank}", "subdomain": base}
        spec["containers"] = [_with_env(one, _rank_variables(base, rank, wanted)) for one in spec["containers"]]
    else:
        metadata["name"] = base
    return {**given, "metadata": metadata, "spec": spec}


def make_services(manifest: Document, base: str, filling: Filling) -> list[Document]:
    services = []
    for one in items(manifest, "Service"):
        given = without_server_fields(one)
        metadata = {**filling.marked(given["metadata"]), "name": base}
        services.append({**given, "metadata": metadata})
    return services


def _rank_variables(base: str, rank: int, wanted: Wanted) -> dict[str, str]:
    size = str(len(wanted.places))
    return {
        "RANK": str(rank),
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(rank),
        "GROUP_RANK": str(rank),
        "NUM_NODES": size,
        "MASTER_ADDR": f"{base}-0.{base}",
        "MASTER_PORT": str(MASTER_PORT),
        "SWELL_TASK_INDEX": str(rank),
        "JOB_COMPLETION_INDEX": str(rank),
    }


def _with_env(container: Document, variables: dict[str, str]) -> Document:
    kept = [one for one in container.get("env") or () if one["name"] not in variables]
    return {**container, "env": [*kept, *({"name": name, "value": text} for name, text in variables.items())]}
