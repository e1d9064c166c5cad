"""Where was a manifest submitted from?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from swell.model.job import JobId, ResizeMode


@dataclass(frozen=True, slots=True)
class Context:
    """The caller's side: tasks run in this folder unless the manifest names another."""

    workdir: str
    umask: int = 0o022
    name: str = ""  #: when the manifest gives none; empty: made from the command
    #: An id or a name → the id, or `Rejected`. None: ids are believed, names refused.
    find_job: Callable[[str], JobId] | None = None
    priority_classes: Mapping[str, int] = field(default_factory=dict)  #: what a cluster calls its priorities
    variables: Collection[str] = frozenset()  #: names in the caller's environment, which a job has here
    resize: ResizeMode = ResizeMode.AT_CHECKPOINT  #: of PyTorchJobs that do not say how
    on_cluster: bool = False  #: Kubernetes runs it: objects are created as they are, and its API server checks them
