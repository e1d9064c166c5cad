"""How does a user's pod become a pod of ours?

It keeps everything its user wrote. Added are: who places it, the variables of its attempt, as many GPUs as the plan
gave it, and what genai's manager does to its manifests (`model/width_words.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swell.engines.kubernetes.attempt.wanted import Wanted
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.amounts import quantity
from swell.engines.kubernetes.objects.objects import Filling, RoleSize, without_server_fields
from swell.engines.kubernetes.watch.observed_objects import DEVICE, RANK, SHARE_MIB
from swell.engines.kubernetes.watch.unreadable import SCHEDULER
from swell.errors import Rejected
from swell.model.kubernetes_quantity import GPU, ONE
from swell.model.width_words import NGPU, following_command

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NOTED = {VISIBLE: DEVICE, "RESERVED_MEM": SHARE_MIB}  # variables of a container that shares a GPU


def fill_pod(spec: Document, size: RoleSize, filling: Filling) -> Document:
    """A pod's specification in an attempt."""
    containers = [dict(container) for container in spec["containers"]]
    holders = [one for one in containers if _asks_for_gpus(one)] or containers[:1]
    if size.share_mib:
        _share(holders[0])
    elif size.gpus and len(holders) == 1:  # with several, each has its own fixed number
        _give(holders[0], size.gpus, rewrites_width=filling.rewrites_width)
    if len({role.gpus for role in filling.roles}) > 1:  # what all are told at once is true of the first role only
        for container in containers:
            _tell(container, "NUM_GPUS", str(size.gpus or int(size.share_mib > 0)))
    for container in containers:
        container["envFrom"] = [*_others(container, filling.secret), {"secretRef": {"name": filling.secret}}]
    filled = {**spec, "schedulerName": SCHEDULER, "containers": containers}
    if size.share_mib and filling.runtime_class is not None:
        filled.setdefault("runtimeClassName", filling.runtime_class)
    return filled


def fill_template(template: Document, size: RoleSize, filling: Filling) -> Document:
    metadata = filling.marked(template.get("metadata") or {})
    return {**template, "metadata": metadata, "spec": fill_pod(template["spec"], size, filling)}


def gpus_of(spec: Document) -> int:
    """What a pod asks for at the least, over its containers."""
    asked = [container.get("resources") or {} for container in spec.get("containers") or ()]
    return sum(_whole({**(one.get("limits") or {}), **(one.get("requests") or {})}.get(GPU, 0)) for one in asked)


def _whole(amount: Any) -> int:
    count = quantity(amount)
    if count % ONE or count < 0:
        raise Rejected(
            f"{GPU}: {amount!r} is not a whole number of GPUs, and no pod can be made with it; write {GPU}: 1"
        )
    return count // ONE


def _asks_for_gpus(container: Document) -> bool:
    asked = container.get("resources") or {}
    return any(GPU in (asked.get(part) or {}) for part in ("requests", "limits"))


def _others(container: Document, secret: str) -> list[Document]:
    return [one for one in container.get("envFrom") or () if (one.get("secretRef") or {}).get("name") != secret]


def _give(container: Document, gpus: int, *, rewrites_width: bool) -> None:
    asked = container.get("resources") or {}
    amounts = {part: {**(asked.get(part) or {}), GPU: str(gpus)} for part in ("requests", "limits")}
    container["resources"] = {**asked, **amounts}
    if container.get("env"):
        container["env"] = [
            {"name": NGPU, "value": str(gpus)} if one["name"] == NGPU else one for one in container["env"]
        ]
    for words in ("command", "args"):
        if container.get(words):
            container[words] = list(following_command(container[words], gpus, is_elastic=rewrites_width))


def _tell(container: Document, name: str, text: str) -> None:
    """What its user has written stays."""
    env = container.get("env") or []
    if all(one["name"] != name for one in env):
        container["env"] = [*env, {"name": name, "value": text}]


def _share(container: Document) -> None:
    """The device plugin gives it nothing; which GPU it sees, and how much of it, is on its pod when that is bound.

    Not in the template: that cannot always be changed, and the next attempt may have another share.
    """
    asked = container.get("resources") or {}
    container["resources"] = {
        part: {name: amount for name, amount in (given or {}).items() if name != GPU}
        if isinstance(given, dict)
        else given
        for part, given in asked.items()
    }
    env = [one for one in container.get("env") or () if one["name"] not in NOTED]
    noted = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{note}']"}}}
        for name, note in NOTED.items()
    ]
    container["env"] = [*env, *noted]


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
