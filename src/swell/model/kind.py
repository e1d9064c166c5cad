"""Which kinds of documents can be submitted?

The one list of them. Each kind has a reader (`manifests/read.py`), and where Swell creates its object on Kubernetes the
rules of that object (`engines/kubernetes/objects/kinds/`). Whoever treats a kind differently asks one of these fields.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManifestKind:
    api_version: str
    name: str
    is_native: bool = False  #: written in Swell's own notation
    is_bare_pod: bool = False  #: no controller makes its pods
    makes_pods: bool = False  #: on Kubernetes a controller makes its pods; the engine has the rules of its object
    tells_rank_alone: bool = False  #: its operator sets RANK also in the only replica, however many GPUs that has
    follows_caller_resize: bool = False  #: genai's manager resizes jobs of this kind, and only of this kind
    takes_task_range: bool = False  #: the annotation swell.dev/tasks may give it a range of tasks

    def __str__(self) -> str:
        return f"apiVersion: {self.api_version}, kind: {self.name}"


NATIVE_JOB = ManifestKind("swell/v1", "Job", is_native=True)
POD = ManifestKind("v1", "Pod", is_bare_pod=True)
JOB = ManifestKind("batch/v1", "Job", makes_pods=True, takes_task_range=True)
PYTORCHJOB = ManifestKind(
    "kubeflow.org/v1", "PyTorchJob", makes_pods=True, tells_rank_alone=True, follows_caller_resize=True
)
JOBSET = ManifestKind("jobset.x-k8s.io/v1alpha2", "JobSet", makes_pods=True)
MPIJOB = ManifestKind("kubeflow.org/v2beta1", "MPIJob", makes_pods=True)
TRAINJOB = ManifestKind("trainer.kubeflow.org/v1alpha1", "TrainJob")
MINICLUSTERS = tuple(ManifestKind(f"flux-framework.org/{one}", "MiniCluster") for one in ("v1alpha2", "v1alpha1"))
AICHOR = tuple(ManifestKind(version, "AIchorManifest") for version in ("0.2.3", "0.2.2", "0.2.1"))

KINDS = (NATIVE_JOB, POD, JOB, PYTORCHJOB, JOBSET, MPIJOB, TRAINJOB, *MINICLUSTERS, *AICHOR)
RANK_ALONE = frozenset(kind.name for kind in KINDS if kind.tells_rank_alone)


#: Kinds whose pods run when they are applied with kubectl, and which cannot be submitted: what they are for instead.
ONLY_BY_KUBECTL = {
    "CronJob": "makes a Job again and again, and Swell runs each of these Jobs",
    "Deployment": "keeps its pods running for ever, and Swell places each of them",
    "ReplicaSet": "keeps its pods running for ever, and Swell places each of them",
    "StatefulSet": "keeps its pods running for ever, and Swell places each of them",
    "DaemonSet": "has one pod on every node, and Swell starts each of them when its node has room",
    "ReplicationController": "keeps its pods running for ever, and Swell places each of them",
    "LeaderWorkerSet": "keeps groups of pods running for ever, and Swell starts each group together",
}


def find_kind(api_version: object, name: object) -> ManifestKind | None:
    return next((kind for kind in KINDS if (kind.api_version, kind.name) == (api_version, name)), None)
