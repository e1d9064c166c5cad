"""In which image does it run, and what of the machine does it see there?

`image`, `mounts: ["/host:/inside[:ro]"]`, `ports: ["8888:80"]`, `shm: 8GiB`, and for both engines
`volumes: [{claim: data, folder: /srv/data, path: /data}]`. docs/containers.md has the rules and their reasons.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import (
    OBJECT_NAME,
    describe,
    is_true,
    quantity,
    refuse_unknown,
    shorten,
    system_bytes,
    take_list,
    take_mapping,
    take_text,
    whole_number,
)
from swell.model.job import Container, Mount, Volume
from swell.model.launch import INSIDE
from swell.model.quantity import parse_memory

FIELDS = ("image", "mounts", "ports", "shm", "volumes")
VOLUME = ("claim", "nfs", "folder", "path", "readOnly")
VOLUMES_MAX = 50  # a job has two or three
MOUNTS_MAX = 200  # each is an argument of podman's or docker's
PORTS_MAX = 1000  # the same; a range of ports is written out
NFS = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:]+\]):(/[^\0]{0,4095})")
IMAGE_BYTES_MAX = 512  # registry, path, tag and digest together stay well below
PORT_MAX = 65535


def read_container(
    spec: dict[str, Any], workdir: str, *, is_one_task: bool, on_cluster: bool = False
) -> Container | None:
    """None: plain processes."""
    if spec.get("image") is None:
        for field in FIELDS[1:]:
            if spec.get(field):
                raise Rejected(
                    f"{field} without an image: a plain process sees the whole machine; add image, or drop it"
                )
        return None
    volumes = tuple(
        _volume(one, f"volumes[{number}]") for number, one in enumerate(take_list(spec.get("volumes"), "volumes"))
    )
    nowhere = next((number for number, one in enumerate(volumes) if not one.folder), None)
    if nowhere is not None and not on_cluster:
        raise Rejected(
            f"volumes[{nowhere}] is of a cluster; for this machine name a folder beside it, as in "
            "{claim: data, folder: /srv/data, path: /data}"
        )
    if len(volumes) > VOLUMES_MAX:
        raise Rejected(f"volumes has {len(volumes)} entries; at most {VOLUMES_MAX}")
    mounts = tuple(_mount(text) for text in _few(spec, "mounts", MOUNTS_MAX))
    ports = tuple(_port(text) for text in _few(spec, "ports", PORTS_MAX))
    _refuse_twice([mount.target for mount in mounts], "mounts: {} is named twice as a place in the container; keep one")
    _refuse_twice([str(host) for host, _ in ports], "ports: {} of the machine is given out twice; keep one")
    _refuse_twice([one.target for one in volumes], "volumes: {} is named twice as a place in the container; keep one")
    both = [*(mount.target for mount in mounts), *(one.target for one in volumes)]
    _refuse_twice(both, "mounts and volumes: {} is named twice as a place in the container; keep one")
    if ports and not is_one_task:
        raise Rejected("ports with several tasks: each would want the same port of the machine; use one task")
    for folder in (workdir, spec.get("checkpoints") or ""):
        _refuse_colon(str(folder))
    return Container(read_image(spec["image"]), mounts, ports, _shm(spec.get("shm")), volumes)


def _shm(value: object) -> int:
    """0: nothing is said."""
    if value is None:
        return 0
    mib = quantity(parse_memory, value, "shm")
    if mib < 1:
        raise Rejected("shm must be greater than 0, for example 8GiB")
    return mib


def _volume(value: object, where: str) -> Volume:
    given = take_mapping(value, where)
    refuse_unknown(given, VOLUME, where)
    target = _inside(take_text(given.get("path"), f"{where}.path"), where)
    is_read_only = str(given.get("readOnly")).lower() == "true" or is_true(given.get("readOnly"), f"{where}.readOnly")
    if (given.get("claim") is None) == (given.get("nfs") is None):
        raise Rejected(f"{where} needs claim, the name of a PersistentVolumeClaim, or nfs, as in 'server:/folder'")
    folder = _host_folder(given.get("folder"), f"{where}.folder")
    if given.get("claim") is not None:
        claim = take_text(given["claim"], f"{where}.claim")
        if OBJECT_NAME.fullmatch(claim) is None:
            raise Rejected(f"{where}.claim: {shorten(claim)!r} is no name of a PersistentVolumeClaim")
        return Volume(target, claim=claim, is_read_only=is_read_only, folder=folder)
    match = NFS.fullmatch(take_text(given["nfs"], f"{where}.nfs"))
    if match is None or ".." in PurePosixPath(match[2]).parts:
        raise Rejected(f"{where}.nfs is no server and folder, as in 'files.example.org:/data'")
    return Volume(target, server=match[1], export=match[2], is_read_only=is_read_only, folder=folder)


def _host_folder(value: object, where: str) -> str:
    """Empty: none is named."""
    if value is None:
        return ""
    path = take_text(value, where)
    system_bytes(path, where)
    if not path.startswith("/") or ".." in PurePosixPath(path).parts or ":" in path:
        raise Rejected(f"{where}: {shorten(path)!r} must be an absolute path of the host, without '..' and ':'")
    return str(PurePosixPath(path))


def _inside(path: str, where: str) -> str:
    system_bytes(path, f"{where}.path")
    if not path.startswith("/") or ".." in PurePosixPath(path).parts or ":" in path:
        raise Rejected(f"{where}.path: {shorten(path)!r} must be an absolute path of the container")
    target = str(PurePosixPath("/", *PurePosixPath(path).parts[1:]))
    if target == "/" or PurePosixPath(target).is_relative_to(INSIDE):
        raise Rejected(
            f"{where}.path: {shorten(target)!r} cannot be a volume's place: / is the image, {INSIDE} is Swell's own"
        )
    return target


def read_image(value: object) -> str:
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
            raise Rejected(f"mounts: {shorten(path)!r} must be an absolute path of the {what}, without '..'")
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


def _few(spec: dict[str, Any], name: str, most: int) -> list[Any]:
    entries = take_list(spec.get(name), name)
    if len(entries) > most:
        raise Rejected(f"{name} has {len(entries)} entries; at most {most}")
    return entries


def _refuse_twice(names: list[str], message: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise Rejected(message.format(shorten(name)))


def _refuse_colon(folder: str) -> None:
    """Runtimes separate the parts of a mount by it and know no way to write one."""
    if ":" in folder:
        raise Rejected(f"the folder {shorten(folder)!r} has a ':' in it and cannot be mounted; use one without")
