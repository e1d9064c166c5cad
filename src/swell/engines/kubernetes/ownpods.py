"""What do pods look like that we make ourselves, one for each rank?

Of a Pod's manifest there is one. Of a gang in our own notation the manifest is a list: its pods in the order of ranks,
and the Service by whose name they reach each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swell.engines.kubernetes.objects import Filling, without_server_fields
from swell.engines.kubernetes.picture import RANK
from swell.engines.kubernetes.template import fill_pod
from swell.engines.kubernetes.wanted import Wanted

Document = dict[str, Any]


def items(manifest: Document, kind: str) -> list[Document]:
    found = manifest["items"] if manifest["kind"] == "List" else [manifest]
    return [one for one in found if one["kind"] == kind]


def make_pod(manifest: Document, rank: int, wanted: Wanted, filling: Filling) -> Document:
    is_found = manifest["kind"] == "Pods"  # it came by kubectl, and was kept as it came
    given = without_server_fields(manifest["pods"][rank]["document"] if is_found else items(manifest, "Pod")[rank])
    metadata = replace(filling, is_ours=True).marked(given["metadata"])  # whoever brought it: this one we make
    metadata["annotations"] = {**metadata["annotations"], RANK: str(rank)}
    if is_found:
        return {**given, "metadata": metadata}
    spec = fill_pod(given["spec"], filling.roles[wanted.places[rank].role], filling)
    return {**given, "metadata": metadata, "spec": spec}


def make_services(manifest: Document, filling: Filling) -> list[Document]:
    services = [without_server_fields(one) for one in items(manifest, "Service")]
    return [{**one, "metadata": filling.marked(one["metadata"])} for one in services]
