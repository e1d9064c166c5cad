"""What would a document that was written for Kubernetes be there without Swell?

As it was written, but for what only a cluster with another scheduler, or none at all, takes.
"""

from __future__ import annotations

from typing import Any

from swell.manifests.wholepod import REPLACED
from swell.manifests.writers.kubernetes import TARGET
from swell.manifests.writers.rendering import Rendering, as_yaml, lost, width_text
from swell.model.job import JobSpec
from swell.model.kubernetes_quantity import GPU

SIDES = ("requests", "limits")


def write_foreign(document: dict[str, Any], spec: JobSpec) -> Rendering:
    said: dict[str, bool] = {}
    made = _plain(document, spec, said)
    return Rendering(as_yaml([made]), lost(said, TARGET))


def _plain(value: Any, spec: JobSpec, said: dict[str, bool]) -> Any:
    """`said`: what is left out, in words."""
    if isinstance(value, list):
        return [_plain(one, spec, said) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _plain(one, spec, said) for name, one in value.items()}
    if not isinstance(found.get("containers"), list):
        return found
    if found.get("schedulerName") in REPLACED:
        said[f"schedulerName {found.pop('schedulerName')}, for which Swell stands in,"] = True
    found["containers"] = [_fixed(one, spec, said) for one in found["containers"]]
    return found


def _fixed(container: Any, spec: JobSpec, said: dict[str, bool]) -> Any:
    """With one number of GPUs, the least: Kubernetes refuses requests that are not the limits."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return container
    sides = {side: resources.get(side) or {} for side in SIDES}
    amounts = [given[GPU] for given in sides.values() if GPU in given]
    if not amounts or amounts == amounts[:1] * 2 or (GPU in sides["limits"] and len(amounts) == 1):
        return container
    least = str(amounts[0])
    if len(amounts) == 2:
        said[f"a width of {width_text(spec)} (these objects have {spec.width_min})"] = True
    made = {**container, "resources": {**resources, **{side: {**sides[side], GPU: least} for side in SIDES}}}
    if isinstance(made.get("env"), list):
        made["env"] = [_told(one, least) for one in made["env"]]
    return made


def _told(variable: Any, gpus: str) -> Any:
    is_width = isinstance(variable, dict) and variable.get("name") == "NGPU"
    return {"name": "NGPU", "value": gpus} if is_width else variable
