"""Where was a manifest submitted from?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from swell.model.cluster import PriorityClass
from swell.model.job import JobId, ResizeMode
from swell.model.resources import Resources


def _draw_id() -> str:
    return str(uuid4())


@dataclass(frozen=True, slots=True)
class Commit:
    """What is checked out in the folder that a manifest came from."""

    sha: str
    message: str


@dataclass(frozen=True, slots=True)
class Context:
    """The caller's side: tasks run in this folder unless the manifest names another."""

    workdir: str
    umask: int = 0o022
    user: str = ""  #: who submits it
    new_id: Callable[[], str] = _draw_id  #: for what needs one of its own in every submission
    name: str = ""  #: when the manifest gives none; empty: made from the command
    #: An id or a name → the id, or `Rejected`. None: ids are believed, names refused.
    find_job: Callable[[str], JobId] | None = None
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)  #: what a cluster calls its priorities
    variables: Collection[str] = frozenset()  #: names in the caller's environment, which a job has here
    commit: Commit | None = None  #: None: it came from no repository of git's
    has_shell: bool = True  #: behind a command; False: it came over HTTP, and there is only the login's environment
    resize: ResizeMode = ResizeMode.AT_CHECKPOINT  #: of PyTorchJobs that do not say how
    suffix: str = ""  #: added to the name of every manifest; empty: nothing is
    in_images: bool = False  #: AIchor manifests run in the image that they name, which is on this machine
    uploaded: str = ""  #: id of a folder that was sent with it; empty: none was
    nodes: tuple[Resources, ...] = ()  #: what each machine has, were it empty; empty: nobody knows
    on_cluster: bool = False  #: Kubernetes runs it: objects are created as they are, and its API server checks them
