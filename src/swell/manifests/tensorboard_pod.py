"""How is a TensorBoard run beside a job, in its pod?

As a sidecar of the job's own image, because its version must be that of the job's library: it sees the folder that the
job writes to, and ends with the job. It listens to its own pod only; `kubectl port-forward` reaches it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

NAME = "tensorboard"  # of its container, and of the volume that only the pod has
PORT = 6006  # TensorBoard's own
#: A container that ends is started again for ever, so where there is none it says so and waits to be ended.
RUN = (
    'command -v tensorboard > /dev/null && exec tensorboard "$@"; '
    'echo "the program tensorboard is not in the image of the job; add it there: pip install tensorboard"; '
    "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
)


def with_tensorboard(pod: dict[str, Any], folder: str) -> dict[str, Any]:
    """The specification of a pod with one container, which writes to that folder; on a volume, if one covers it."""
    [container] = pod["containers"]
    mounts = list(container.get("volumeMounts") or [])
    volumes = list(pod.get("volumes") or [])
    if not any(PurePosixPath(folder).is_relative_to(one["mountPath"]) for one in mounts):
        mounts.append({"name": NAME, "mountPath": folder})
        volumes.append({"name": NAME, "emptyDir": {}})
    shared = {
        field: container[field] for field in ("image", "imagePullPolicy", "securityContext") if field in container
    }
    words = ["--logdir", folder, "--host", "127.0.0.1", "--port", str(PORT)]
    sidecar = {
        "name": NAME,
        **shared,
        "restartPolicy": "Always",
        "command": ["sh", "-c", RUN, NAME, *words],
        "env": [one for one in container.get("env") or [] if one["name"] == "PATH"],
        "volumeMounts": mounts,
    }
    return {
        **pod,
        "initContainers": [sidecar],
        "containers": [{**container, "volumeMounts": mounts}],
        "volumes": volumes,
    }
