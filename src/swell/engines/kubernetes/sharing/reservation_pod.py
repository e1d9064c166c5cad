"""What does a pod look like that reserves a GPU, and what does it tell?"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.pod_template import VISIBLE
from swell.engines.kubernetes.sharing.reservations import Gpu
from swell.engines.kubernetes.watch.observed_objects import NODE, RESERVATION
from swell.engines.kubernetes.watch.unreadable import SCHEDULER, STORE
from swell.model.kubernetes_quantity import GPU

IMAGE = "docker.io/library/busybox:1.37"  # where nothing else is configured: small, and it has a shell
NOBODY = 65534  # an image that would run as root is refused otherwise
NAME_MAX = 40  # of the node, in the pod's name; a digest tells those apart that begin alike

# One line, then nothing until it is ended. The driver's own word is there only where the runtime brings nvidia-smi.
SCRIPT = f"""found=$(nvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader,nounits 2>/dev/null | tr -d ' ')
echo "swell-gpu visible=${{{VISIBLE}:-}} driver=$(echo $found | tr ' ' ';')"
trap 'exit 0' TERM INT
sleep 2147483647 & wait
"""
LINE = re.compile(r"^swell-gpu visible=(\S*) driver=(\S*)$", re.MULTILINE)
NO_GPU = ("", "all", "none", "void")


@dataclass(frozen=True, slots=True)
class Told:
    uuid: str  #: as others are to be told it; empty: no single GPU
    total_mib: int = 0  #: its memory; 0: nobody knows
    problem: str = ""


def pod_name(store: str, gpu: Gpu) -> str:
    node, device = gpu
    digest = hashlib.sha256(f"{store} {node}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "-", node.lower())[:NAME_MAX].strip("-")
    return f"swell-gpu-{readable}-{digest}-{device.removeprefix('gpu-')}"


def make_pod(gpu: Gpu, *, store: str, namespace: str, image: str, runtime_class: str | None) -> Document:
    """It asks for one GPU and counts for nothing else; its limits keep it small."""
    container = {
        "name": "reservation",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}],
        "resources": {
            "requests": {"cpu": "0", "memory": "0", GPU: "1"},
            "limits": {"cpu": "1", "memory": "128Mi", GPU: "1"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    if runtime_class is not None:
        spec["runtimeClassName"] = runtime_class
    metadata = {
        "name": pod_name(store, gpu),
        "namespace": namespace,
        "labels": {RESERVATION: gpu[1], STORE: store},
        # Whoever empties a node need not keep it for this pod: it goes with those who share the GPU.
        "annotations": {NODE: gpu[0], "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def without_user(pod: Document) -> Document:
    """For clusters that choose one themselves (OpenShift), and refuse any other."""
    context = {name: value for name, value in pod["spec"]["securityContext"].items() if name != "runAsUser"}
    return {**pod, "spec": {**pod["spec"], "securityContext": context}}


def parse_line(text: str) -> Told | None:
    """None: it has said nothing yet."""
    match = LINE.search(text)
    if match is None:
        return None
    visible, driver = match[1], [line.split(",") for line in match[2].split(";") if "," in line]
    single = driver[0] if len(driver) == 1 else None
    total_mib = int(single[1]) if single is not None and single[1].isdecimal() and not visible.startswith("MIG-") else 0
    if visible.startswith(("GPU-", "MIG-")) and "," not in visible:
        return Told(visible, total_mib)
    if single is not None:
        return Told(single[0], total_mib)
    if visible not in NO_GPU and "," not in visible and "/" not in visible:
        return Told(visible)  # an index, where the device plugin is told to give those
    return Told("", problem=f"its pod sees {VISIBLE}={visible!r}, and {len(driver)} GPUs by nvidia-smi: not one")
