"""What of our own notation can a pod of Kubernetes do?

A pod sees nothing of the caller's machine: no folder, no environment, no port. What needs one of them is refused
before anything is created; whoever has a volume for it writes a manifest of Kubernetes'.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import describe, shorten
from swell.manifests.tensorboard_pod import PORT
from swell.model.job import Array

NO_IMAGE = "a job on Kubernetes runs in a container: give --image IMAGE, or image: IMAGE in the file"
REFUSED = {
    "mounts": "would mount folders of a node into the pod (hostPath), which Pod Security 'restricted' does not allow; "
    "name a volume instead, as in volumes: [{claim: data, folder: /srv/data, path: /data}]",
    "checkpoints": "is a folder that must outlive its pods, and a pod's own does not; write a Pod or PyTorchJob "
    "manifest that mounts a volume for it",
}
BOARD = f"tensorboard: look at it with kubectl port-forward, at port {PORT} of the pod of rank 0"
FOLDER = re.compile(r"/+[^/:\0][^:\0]{0,4000}")
IDLE = ("onOverrun", "utilizationPolicy", "utilization_policy")
#: Kubernetes' own limit for an Indexed Job whose tasks fail one by one (backoffLimitPerIndex).
ARRAY_TASKS_MAX = 100_000


def check_as_pod(spec: dict[str, Any], array: Array | None) -> tuple[str, ...]:
    """What has no effect there, in words."""
    if spec.get("image") is None:
        raise Rejected(NO_IMAGE)
    for field, why in REFUSED.items():
        if spec.get(field):
            raise Rejected(f"{field} {why}")
    workdir, board = spec.get("workdir"), spec.get("tensorboard")
    if isinstance(board, str) and (not FOLDER.fullmatch(board) or ".." in PurePosixPath(board).parts):
        raise Rejected(f"tensorboard: {shorten(board)!r} must be a folder of the container, from / on, as in /logs")
    if board and array is not None:
        raise Rejected("tensorboard of an array: on Kubernetes each task has a pod of its own; leave it out")
    if isinstance(workdir, str) and not workdir.startswith("/"):
        raise Rejected(
            f"workdir {shorten(workdir)!r} is relative to your folder, which a pod does not have; write a path of the "
            "image, from / on, or leave it out for the image's own"
        )
    if array is not None:
        _check_array(array)
    notes = [f"{field} has no effect: GPUs are not measured on Kubernetes" for field in IDLE if spec.get(field)]
    if board:
        notes.append(BOARD)
    if spec.get("ports"):
        notes.append("ports: the machine's port is not opened; reach the pod's with kubectl port-forward, or a Service")
    return tuple(notes)


def check_text(words: tuple[str, ...], field: str) -> None:
    """A machine's programs can be given any bytes, an object of Kubernetes only text."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise Rejected(
                f"{field}: {describe(word)} is not UTF-8, which Kubernetes wants; put it into a file"
            ) from None


def _check_array(array: Array) -> None:
    count = len(array.indices)
    if any(given != index for index, given in enumerate(array.indices)):
        raise Rejected(
            f"array {shorten(str(array.indices))}: on Kubernetes the tasks of an array are counted from 0; write "
            f"0-{count - 1}, and let the command find its part by JOB_COMPLETION_INDEX"
        )
    if count > ARRAY_TASKS_MAX:
        raise Rejected(f"array has {count} tasks; Kubernetes runs at most {ARRAY_TASKS_MAX} in one Job: split it")
