"""In which image does it run, and what of the machine does it see there?

`image`, `mounts: ["/host:/inside[:ro]"]`, `ports: ["8888:80"]`. docs/containers.md has the rules and their reasons.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import describe, shorten, system_bytes, take_list, whole_number
from swell.model.container import INSIDE
from swell.model.job import Container, Mount

FIELDS = ("image", "mounts", "ports")
IMAGE_BYTES_MAX = 512  # registry, path, tag and digest together stay well below
PORT_MAX = 65535


def read_container(spec: dict[str, Any], workdir: str, *, is_one_task: bool) -> Container | None:
    """None: plain processes."""
    if spec.get("image") is None:
        for field in ("mounts", "ports"):
            if spec.get(field):
                raise Rejected(
                    f"{field} without an image: a plain process sees the whole machine; add image, or drop it"
                )
        return None
    mounts = tuple(_mount(text) for text in take_list(spec.get("mounts"), "mounts"))
    ports = tuple(_port(text) for text in take_list(spec.get("ports"), "ports"))
    _refuse_twice([mount.target for mount in mounts], "mounts: {} is named twice as a place in the container; keep one")
    _refuse_twice([str(host) for host, _ in ports], "ports: {} of the machine is given out twice; keep one")
    if ports and not is_one_task:
        raise Rejected("ports with several tasks: each would want the same port of the machine; use one task")
    for folder in (workdir, spec.get("checkpoints") or ""):
        _refuse_colon(str(folder))
    return Container(_image(spec["image"]), mounts, ports)


def _image(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Rejected(f"image must be an image's name, as in docker.io/pytorch/pytorch:2.4, but is {describe(value)}")
    if len(system_bytes(value, "image")) > IMAGE_BYTES_MAX:
        raise Rejected(f"image is longer than {IMAGE_BYTES_MAX} bytes; no registry has such a name")
    if value.startswith("-") or any(letter.isspace() for letter in value):
        raise Rejected(f"image {shorten(value)!r} is not a name: it begins with '-' or has a space in it")
    return value


def _mount(value: object) -> Mount:
    text = value if isinstance(value, str) else ""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target or mode not in ("", "ro", "rw"):
        given = shorten(text) if text else describe(value)
        raise Rejected(f"mounts: {given!r} is not /host/path:/inside or /host/path:/inside:ro")
    system_bytes(text, "mounts: a path")
    for what, path in (("host", source), ("container", target)):
        if not path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise Rejected(f"mounts: {shorten(path)!r} is no full path of the {what}; write it from / on, without '..'")
    target = str(PurePosixPath("/", *PurePosixPath(target).parts[1:]))
    if target == "/" or PurePosixPath(target).is_relative_to(INSIDE):
        raise Rejected(
            f"mounts: {shorten(target)!r} cannot be a mount's place: / is the image, {INSIDE} is Swell's own"
        )
    return Mount(str(PurePosixPath(source)), target, mode == "ro")


def _port(value: object) -> tuple[int, int]:
    host, colon, inside = str(value).partition(":")
    if not colon:
        raise Rejected(f"ports: {shorten(str(value))!r} is not HOST:CONTAINER, as in 8888:80")
    low, high = 1, PORT_MAX
    return (
        whole_number(host, "ports: the machine's port", low=low, high=high),
        whole_number(inside, "ports: the container's port", low=low, high=high),
    )


def _refuse_twice(names: list[str], message: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise Rejected(message.format(shorten(name)))


def _refuse_colon(folder: str) -> None:
    """Runtimes separate the parts of a mount by it and know no way to write one."""
    if ":" in folder:
        raise Rejected(f"the folder {shorten(folder)!r} has a ':' in it and cannot be mounted; use one without")
