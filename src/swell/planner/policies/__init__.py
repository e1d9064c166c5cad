"""Which rules does the planner follow? A policy for each name; `swell` is the default.

A policy is a function from a snapshot to a plan. It is pure, as the whole planner is: no clock, no randomness, no
I/O. The other policies are references that simulations and experiments compare with; each is one short file here.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from swell.model.plan import Plan, Snapshot
from swell.model.policy import DEFAULT_POLICY
from swell.planner.check import check_plan
from swell.planner.plan import make_plan
from swell.planner.policies.backfill import backfill
from swell.planner.policies.fifo import fifo
from swell.planner.policies.genai import genai
from swell.planner.policies.kube_default import kube_default
from swell.planner.policies.optimus import optimus
from swell.planner.policies.srtf import srtf
from swell.planner.policies.tiresias import tiresias

__all__ = ["DEFAULT_POLICY", "POLICIES", "Check", "Policy", "check_of"]


class Policy(Protocol):
    """Decides what happens next."""

    def __call__(self, snapshot: Snapshot, /) -> Plan: ...


class Check(Protocol):
    """Raises `BrokenPlan` for a plan that must not be carried out."""

    def __call__(self, snapshot: Snapshot, plan: Plan, /) -> None: ...


POLICIES: dict[str, Policy] = {
    DEFAULT_POLICY: make_plan,
    "fifo": fifo,
    "backfill": backfill,
    "srtf": srtf,
    "tiresias": tiresias,
    "optimus": optimus,
    "genai": genai,
    "kube-default": kube_default,
}


def check_of(policy: str) -> Check:
    """Who may preempt whom is the default's promise to users; the references have an order of their own."""
    return check_plan if policy == DEFAULT_POLICY else partial(check_plan, any_rank=True)
