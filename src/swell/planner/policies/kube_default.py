"""As Kubernetes' own scheduler: each pod by itself, in order, wherever it fits now.

It knows no gangs. A gang whose pods are jobs of their own (the simulator submits them so) can hold half of what it
needs while another holds the rest: both wait for ever.
"""

from __future__ import annotations

from swell.model.plan import Plan, Snapshot
from swell.planner.policies.allocate import enact, runnable, width_of


def kube_default(snapshot: Snapshot) -> Plan:
    return enact(snapshot, [(job, job.width if job.slots else width_of(job)) for job in runnable(snapshot)])
