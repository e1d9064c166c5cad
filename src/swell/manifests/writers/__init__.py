"""`JobSpec` → the files of other systems. Pure: a job in, a text and what it could not say out.

Public: `render`, `write_foreign`, `Rendering`, `TARGETS`. One file per target. A writer never leaves something out in
silence: what its target cannot express is a sentence in `losses`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swell.manifests.writers.foreign import write_foreign
from swell.manifests.writers.jobset import write_jobset
from swell.manifests.writers.kubernetes import write_kubernetes
from swell.manifests.writers.native import write_native
from swell.manifests.writers.rendering import Rendering
from swell.manifests.writers.sbatch import write_sbatch
from swell.model.job import JobSpec

TARGETS: dict[str, Callable[[JobSpec], Rendering]] = {
    "kubernetes": write_kubernetes,
    "jobset": write_jobset,
    "sbatch": write_sbatch,
    "native": write_native,
}


def render(spec: JobSpec, target: str, siblings: Sequence[str] = ()) -> Rendering:
    """`siblings`: names of the jobs that are written into the same text, in their order."""
    return write_native(spec, siblings) if target == "native" else TARGETS[target](spec)


__all__ = ["TARGETS", "Rendering", "render", "write_foreign"]
