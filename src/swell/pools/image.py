"""What do workers that run in containers run from?

The image has Swell and what jobs need: a worker in a container runs jobs as processes of that container.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swell.errors import Rejected
from swell.machine.worker_options import Flag, FlagKind

IMAGE_VARIABLE = "SWELL_WORKER_IMAGE"
IMAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/:@-]{0,511})")
FOLDER = re.compile(r"(?:/[A-Za-z0-9_.-]+)+")
IMAGE_FLAG = Flag(
    "image",
    "image",
    FlagKind.TEXT,
    "IMAGE",
    f"Image with Swell and what jobs need.  [default: that of ${IMAGE_VARIABLE}]",
)
MOUNT_FLAG = Flag(
    "mount",
    "mounts",
    FlagKind.TEXT,
    "DIR[:DIR],…",
    "Folders of the machine, and where the container has them; for data and checkpoints that workers share.",
)
SHARED_MEMORY_FLAG = Flag(
    "shared-memory",
    "shared_memory_mib",
    FlagKind.MEMORY,
    "SIZE",
    "Size of /dev/shm of each worker, which all its tasks share.  [default: half of --memory]",
)
SHARED_MEMORY_MIB_MIN = 64  # what a container has by itself


@dataclass(frozen=True, slots=True)
class SharedFolder:
    source: str  #: on the machine
    target: str  #: in the container


def read_image(said: str | None, environ: Mapping[str, str]) -> str:
    image = said or environ.get(IMAGE_VARIABLE)
    if not image:
        raise Rejected(
            "workers of this pool run in containers, and no image is named; add --image IMAGE, or set "
            f"{IMAGE_VARIABLE}. It has Swell and what your jobs need (docs/pools/image.md)"
        )
    if not IMAGE.fullmatch(image):
        raise Rejected(f"--image {image[:100]!r} is not the name of an image")
    return image


def read_mounts(said: str | None) -> tuple[SharedFolder, ...]:
    return tuple(_read_mount(part) for part in (said or "").split(",") if part)


def mounted_folders(told: Mapping[str, Any]) -> dict[str, str]:
    """In the container → the flag that says so."""
    return {mount.target: MOUNT_FLAG.name for mount in read_mounts(told.get(MOUNT_FLAG.field))}


def check_shared_memory(said: Mapping[str, Any]) -> None:
    if said.get(SHARED_MEMORY_FLAG.field) == 0:
        raise Rejected("--shared-memory 0 would leave tasks without /dev/shm; say at least 64MiB, or leave it out")


def shared_memory_mib(said: int | None, memory_mib: int) -> int:
    """A limit, which takes no memory by itself: what a container has is too little for data loaders."""
    return max(SHARED_MEMORY_MIB_MIN, memory_mib // 2) if said is None else said


def _read_mount(text: str) -> SharedFolder:
    source, _, target = text.partition(":")
    mount = SharedFolder(source, target or source)
    for folder in (mount.source, mount.target):
        if not FOLDER.fullmatch(folder) or ".." in folder.split("/"):
            raise Rejected(
                f"--mount {text[:100]!r} is not DIR or DIR:DIR, with absolute paths, for example /mnt/shared"
            )
    return mount
