"""What does a quota of a namespace leave, and is a refusal of it final?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import QUOTAS
from swell.engines.kubernetes.objects.amounts import pod_amounts, quantity
from swell.engines.kubernetes.watch.unreadable import readable
from swell.model.kubernetes_quantity import GPU, ONE

Pods = Sequence[tuple[Document, int]]  # specifications of pods, and how many are made with each

GPUS = f"requests.{GPU}"  # how a quota counts them; it knows no limits of extended resources
#: The API server's own words: what was too much of what is asked for, used and limited.
EXCEEDED = re.compile(r"exceeded quota: [^,]+, requested: (\S+), used: \S+, limited: (\S+)")


def is_full_now(refusal: str) -> bool:
    """Would it be let in, were nobody else there? Then it waits as others do; otherwise waiting does not help."""
    found = EXCEEDED.search(refusal)
    if found is None:
        return False
    requested, limited = (_amounts(text) for text in found.groups())
    return all(quantity(amount) <= quantity(limited.get(name, "0")) for name, amount in requested.items())


def is_too_small(refusal: str) -> bool:
    return EXCEEDED.search(refusal) is not None and not is_full_now(refusal)


#: What a pod requests → what a quota may call it.
NAMES = {"cpu": ("cpu", "requests.cpu"), "memory": ("memory", "requests.memory"), GPU: (GPUS,)}
PODS = ("pods", "count/pods")
UNITS = {"memory": (ONE * 2**20, "Mi")}  #: how amounts are written; others as plain numbers


def gang_demand(pods: Pods) -> dict[str, int]:
    """What pods with these specifications, so many of each, request together; by the words of quotas, in billionths."""
    found: Counter[str] = Counter()
    for spec, count in pods:
        for name, amount in pod_amounts(spec).items():
            for word in NAMES.get(name, ()):
                found[word] += amount * count
        for word in PODS:
            found[word] += count * ONE
    return dict(found)


def refusal_of_gang(quotas: Iterable[Document], pods: Pods, others: Pods = (), *, is_empty: bool = False) -> str:
    """What the API server would say of the pods of a gang, made together; empty: they may be made.

    `others`: pods that it is about to count, of gangs that start just before. `is_empty`: were nothing else there.
    """
    found = readable(quotas, lambda quota: _refusal(quota, pods, others, is_empty=is_empty))
    return next((said for said in found if said), "")


def _refusal(quota: Document, pods: Pods, others: Pods, *, is_empty: bool) -> str:
    spec, status = quota.get("spec") or {}, quota.get("status") or {}
    demand, before = (gang_demand([one for one in side if _counts(spec, one[0])]) for side in (pods, others))
    hard, used = status.get("hard") or spec.get("hard") or {}, {} if is_empty else status.get("used") or {}
    over = [name for name in sorted(demand.keys() & hard.keys()) if _is_over(name, demand, before, hard, used)]
    if not over:
        return ""
    requested = ",".join(f"{name}={_written(name, demand[name])}" for name in over)
    was, limited = (",".join(f"{name}={side.get(name, 0)}" for name in over) for side in (used, hard))
    starting = [f"{name}={_written(name, before[name])}" for name in over if before.get(name)]
    beside = f" (gangs that start at the same moment request {','.join(starting)})" if starting else ""
    name = quota["metadata"]["name"]
    return f"exceeded quota: {name}, requested: {requested}, used: {was}, limited: {limited}{beside}"


def _counts(quota: Document, pod: Document) -> bool:
    """Does a quota with this specification count a pod? Not where only the API server can tell: then it refuses it."""
    named = [{"scopeName": name, "operator": "Exists"} for name in quota.get("scopes") or ()]
    selected = (quota.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_is_in_scope(one, pod) for one in (*named, *selected))


def _is_in_scope(scope: dict[str, Any], pod: Document) -> bool:
    """A LimitRange may give a pod amounts that names none, and the cluster's default a class that names none."""
    name, has_deadline = scope["scopeName"], pod.get("activeDeadlineSeconds") is not None
    if name in ("Terminating", "NotTerminating"):
        return has_deadline is (name == "Terminating")
    if name == "NotBestEffort":
        return _names_amounts(pod)
    chosen = pod.get("priorityClassName")
    if name != "PriorityClass" or not chosen:
        return False
    operator, values = scope["operator"], scope.get("values") or ()
    return (
        operator == "Exists"
        or (operator == "In" and chosen in values)
        or (operator == "NotIn" and chosen not in values)
    )


def _names_amounts(pod: Document) -> bool:
    """Of CPUs or memory: such a pod is not of the class BestEffort."""
    asking = [pod, *(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    given = [(one.get("resources") or {}).get(side) or {} for one in asking for side in ("requests", "limits")]
    return any(quantity(amounts.get(name, 0)) > 0 for amounts in given for name in ("cpu", "memory"))


def _is_over(name: str, demand: Mapping[str, int], before: Mapping[str, int], hard: Document, used: Document) -> bool:
    there = before.get(name, 0) + quantity(used.get(name, 0))
    return demand[name] > 0 and demand[name] + there > quantity(hard[name])


def _written(name: str, amount: int) -> str:
    unit, suffix = UNITS.get(name.removeprefix("requests."), (ONE, ""))
    return f"{amount / unit:g}{suffix}"


def _amounts(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def read_gpu_quota(port: ApiClient, namespace: str) -> tuple[str, str] | None:
    """How many GPUs a namespace may use, and does; None: no quota counts them."""
    return tightest(port.list(Selection(QUOTAS, namespace)).items)


def tightest(quotas: Iterable[Document]) -> tuple[str, str] | None:
    """All of them hold, so it is the one that leaves least. One that nobody has counted yet allows nothing."""
    pairs = [pair for pair in readable(quotas, _gpus_of) if pair is not None]
    return min(pairs, key=lambda pair: quantity(pair[0]) - quantity(pair[1]), default=None)


def _gpus_of(quota: Document) -> tuple[str, str] | None:
    """How many it allows, and how many are used; None: it does not count them."""
    if GPUS not in ((quota.get("spec") or {}).get("hard") or {}):
        return None
    status = quota.get("status") or {}
    return str((status.get("hard") or {}).get(GPUS, "0")), str((status.get("used") or {}).get(GPUS, "0"))
