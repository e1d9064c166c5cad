"""What do the pods of a Job or a JobSet learn about themselves?

By variables of their own, under the names AIchor gives them, and by `valueFrom.fieldRef` to the labels and annotations
that the controllers of Jobs and JobSets put on their pods. The Jobs of a set are counted in the order they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swell.manifests.metadata import ObjectIdentity
from swell.model.job import Numbered

PREFIX = "jobset.sigs.k8s.io/"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
COORDINATOR = "127.0.0.1"  # gangs on one machine: the worker's MASTER_ADDR, for the same reason


@dataclass(frozen=True, slots=True)
class Jobs:
    """The Jobs that one entry of `replicatedJobs` stands for."""

    name: str
    replicas: int
    pods: int  #: of each Job
    before: int  #: Jobs of the entries before it
    total: int  #: Jobs of the whole set
    is_array: bool = False  #: its pods run a few at a time: the first of each Job, then the second of each …


def told_to(identity: ObjectIdentity, jobs: Jobs, *, has_coordinator: bool) -> ObjectIdentity:
    """The same JobSet, as the pods of these Jobs see it."""
    if jobs.is_array:
        completion = Numbered("JOB_COMPLETION_INDEX", each=jobs.replicas)
        index = Numbered("JOB_INDEX", wrap=jobs.replicas)
        overall = Numbered("JOB_GLOBAL_INDEX", first=jobs.before, wrap=jobs.replicas)
    else:
        completion = Numbered("JOB_COMPLETION_INDEX", wrap=jobs.pods)
        index = Numbered("JOB_INDEX", each=jobs.pods)
        overall = Numbered("JOB_GLOBAL_INDEX", first=jobs.before, each=jobs.pods)
    labels: dict[str, str | Numbered] = {
        COMPLETION_INDEX: completion,
        f"{PREFIX}jobset-name": identity.name,
        f"{PREFIX}replicatedjob-name": jobs.name,
        f"{PREFIX}replicatedjob-replicas": str(jobs.replicas),
        f"{PREFIX}job-index": index,
        f"{PREFIX}job-global-index": overall,
        f"{PREFIX}global-replicas": str(jobs.total),
    }
    if has_coordinator:
        labels[f"{PREFIX}coordinator"] = COORDINATOR
    variables: dict[str, str | Numbered] = {
        "GLOBAL_REPLICAS": str(jobs.total),
        "REPLICATED_JOB_NAME": jobs.name,
        "REPLICATED_JOB_REPLICAS": str(jobs.replicas),
        **{one.name: one for one in (completion, index, overall)},
    }
    added = {name: value for name, value in labels.items() if isinstance(value, str)}  # of all its pods alike
    return replace(identity, fields={**identity.fields, **_paths(labels)}, variables=variables, added=added)


def told_to_indexed(identity: ObjectIdentity) -> ObjectIdentity:
    """The same Job, as its pods see it when they are indexed."""
    return replace(identity, fields=_paths({COMPLETION_INDEX: Numbered("JOB_COMPLETION_INDEX")}))


def _paths(labels: Mapping[str, str | Numbered]) -> dict[str, str | Numbered]:
    """What `fieldRef` names them."""
    return {f"metadata.{kind}['{name}']": value for kind in ("labels", "annotations") for name, value in labels.items()}
