"""Which pod do the Services of an installation send requests to?

Every pod of the Deployment is ready, also those that stand by, or a roll-out would never end and no
PodDisruptionBudget would let one of them go. Services therefore select the one that serves by a label, which it takes.
"""

from __future__ import annotations

import contextlib
import logging

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.resources import PODS
from swell.errors import NotFound

log = logging.getLogger(__name__)

SERVES = "swell.dev/serves"  # label of the pod whose server answers


def take_requests(port: ApiClient, pod: str, namespace: str) -> None:
    """From whichever pod had them: one whose container was killed comes back as a standby with its old labels."""
    found = port.list(Selection(PODS, namespace, labels=f"{SERVES}=true")).items
    for name in sorted(one["metadata"]["name"] for one in found):
        if name != pod:
            with contextlib.suppress(NotFound):
                port.patch(PODS, name, {"metadata": {"labels": {SERVES: None}}}, namespace)
    port.patch(PODS, pod, {"metadata": {"labels": {SERVES: "true"}}}, namespace)
    log.info("requests come to pod %s", pod)
