"""How many pods may be evicted now, by the PodDisruptionBudgets of their namespace?

They are asked for when a job is to be evicted, which is seldom. The API server refuses each eviction beyond a budget by
itself; here the pods of a job are counted together, so that no job loses only some of its pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swell.engines.kubernetes.client.documents import Document


@dataclass(frozen=True, slots=True)
class Budget:
    name: str
    selector: str | None  #: as a query; empty: every pod of its namespace; None: none
    allowed: int  #: so many may be evicted now; 0 also where nobody has counted yet


def parse_budget(document: Document) -> Budget:
    status = document.get("status") or {}
    selector = (document.get("spec") or {}).get("selector")
    query = None if selector is None else ",".join(_requirements(selector))
    return Budget(document["metadata"]["name"], query, max(0, int(status.get("disruptionsAllowed") or 0)))


def refusal_of(budget: Budget, pods: int) -> str:
    return (
        f"PodDisruptionBudget {budget.name!r} allows {budget.allowed} of its {pods} pods to be evicted now, and a job "
        "is evicted whole or not at all; it is asked again until it does"
    )


def _requirements(selector: dict[str, Any]) -> list[str]:
    labels = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    return labels + [_expression(one) for one in selector.get("matchExpressions") or ()]


def _expression(one: dict[str, Any]) -> str:
    key, operator, values = str(one["key"]), one["operator"], ",".join(one.get("values") or ())
    words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
    return words[operator]
