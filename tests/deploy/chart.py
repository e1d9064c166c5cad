"""The Helm chart, and what it renders."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from cluster.binaries import program

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "deploy" / "helm" / "swell"
NAMESPACE = "swell"
JOBS_NAMESPACE = "swell-jobs"  # of jobs that name none
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:swell"
Document = dict[str, Any]

#: What an installation may look like, by name: values beside the chart's own.
VARIANTS: dict[str, Document] = {
    "as it is": {},
    "openshift": {"fsGroup": None},
    "in all namespaces": {"clusterWide": True},
    "in two namespaces": {"namespaces": ["ml", "hpc"]},
    "with jobs in one of two": {"namespaces": ["ml", "hpc"], "jobsNamespace": "ml", "createJobsNamespace": False},
    "with doors": {
        "doors": {"enabled": True, "user": "system:serviceaccount:ml:default", "from": [{"podSelector": {}}]},
    },
    "with everything": {
        "image": {"repository": "registry.example:5000/swell", "tag": "x", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "reservationImage": "registry.example:5000/busybox:1",
        "config": {
            "limits": {"default": {"gpus": 4, "queued": None}, "users": {"eva": {"gpus": 8}}},
            "fair_share": {"half_life": "7d"},
            "admin_group": "ops",
            "admins": ["eva"],
            "token_audiences": ["swell"],
            "keep_s": None,
            "notices": {"addresses": ["https://hooks.slack.com/services/"], "networks": ["10.20.0.0/16", "fd00::1"]},
            "cluster": {"stand_ins": False},
        },
        "adminToken": {"existingSecret": "swell-admin", "key": "password"},
        "advertise": "https://swell.example.org",
        "allowedHosts": ["swell.example.org"],
        "listenAddress": "[::]",
        "service": {"port": 80},
        "persistence": {"size": "1Gi", "storageClass": "fast", "keep": False},
        "serviceAccount": {"name": "planner", "annotations": {"a": "b"}},
        "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "control", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": {"c": "d"},
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}], "egressPorts": [443, 16443]},
    },
    "in users' names": {"impersonation": {"users": ["anna", "ben"], "groups": ["ml-team"]}},
    "with a standby": {"replicas": 2, "affinity": {"podAffinity": {}, "nodeAffinity": {}}},
    "on a claim that is there": {"persistence": {"existingClaim": "mine"}, "networkPolicy": {"enabled": False}},
}


def helm(*words: str | Path, values: Document | None = None) -> subprocess.CompletedProcess[str]:
    given = [] if values is None else ["--values", "-"]
    return subprocess.run(
        [program("helm"), *words, *given],
        input=None if values is None else yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(values: Document | None = None) -> list[Document]:
    done = helm("template", "swell", CHART, "--namespace", NAMESPACE, values=values or {})
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[Document], kind: str) -> dict[str, Document]:
    return {document["metadata"]["name"]: document for document in documents if document["kind"] == kind}


def render_manifests() -> Any:
    """tools/render_manifests.py as a module."""
    spec = importlib.util.spec_from_file_location("render_manifests", ROOT / "tools" / "render_manifests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
