"""An image, what is mounted and which ports are open: what may be asked, and what is said otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from swell.model.job import Container, JobSpec, Mount, Volume

from .test_native import manifest, read, refusal

IMAGE = "docker.io/pytorch/pytorch:2.4"


def test_an_image_its_mounts_and_its_ports_are_understood() -> None:
    asked = {"image": IMAGE, "mounts": ["/data:/data:ro", "/a//b/:/c/./d/"], "ports": ["8888:80", "6006:6006"]}
    container = Container(
        IMAGE, (Mount("/data", "/data", is_read_only=True), Mount("/a/b", "/c/d")), ((8888, 80), (6006, 6006))
    )
    spec = read(asked)
    assert spec.container == container
    assert JobSpec.from_document(spec.to_document()) == spec
    assert read({"image": IMAGE, "tasks": 4}).container == Container(IMAGE)
    assert read({}).container is None


def test_a_volume_that_names_a_folder_is_that_folder_on_this_machine() -> None:
    """So one job file runs here and on Kubernetes, where the folder has no meaning."""
    volumes = [
        {"claim": "data", "folder": "/srv//data/", "path": "/data", "readOnly": True},
        {"nfs": "files:/export", "folder": "/mnt/files", "path": "/files"},
    ]
    spec = read({"image": IMAGE, "volumes": volumes})
    assert spec.container == Container(
        IMAGE,
        volumes=(
            Volume("/data", claim="data", is_read_only=True, folder="/srv/data"),
            Volume("/files", server="files", export="/export", folder="/mnt/files"),
        ),
    )
    assert JobSpec.from_document(spec.to_document()) == spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"mounts": ["/a:/b"]},
            "mounts without an image: a plain process sees the whole machine; add image, or drop it",
        ),
        ({"ports": ["1:1"]}, "ports without an image: a plain process sees the whole machine; add image, or drop it"),
        ({"image": ""}, "image must be an image's name, as in docker.io/pytorch/pytorch:2.4, but is ''"),
        ({"image": "--privileged"}, "image '--privileged' is not a name: it begins with '-' or has a space in it"),
        ({"image": "a b"}, "image 'a b' is not a name: it begins with '-' or has a space in it"),
        ({"image": "a" * 600}, "image is longer than 512 bytes; no registry has such a name"),
        ({"mounts": ["data:/data"]}, "mounts: 'data' must be an absolute path of the host, without '..'"),
        (
            {"mounts": ["/data:data"]},
            "mounts: 'data' must be an absolute path of the container, without '..'",
        ),
        ({"mounts": ["/a/../b:/c"]}, "mounts: '/a/../b' must be an absolute path of the host, without '..'"),
        ({"mounts": ["/data"]}, "mounts: '/data' is not /host/path:/inside or /host/path:/inside:ro"),
        ({"mounts": ["/a:/b:exec"]}, "mounts: '/a:/b:exec' is not /host/path:/inside or /host/path:/inside:ro"),
        ({"mounts": ["/a:/"]}, "mounts: '/' cannot be a mount's place: / is the image, /swell is Swell's own"),
        (
            {"mounts": ["/a:/swell/sdk"]},
            "mounts: '/swell/sdk' cannot be a mount's place: / is the image, /swell is Swell's own",
        ),
        ({"mounts": [f"/a:/x{number}" for number in range(201)]}, "mounts has 201 entries; at most 200"),
        ({"ports": [f"{number}:80" for number in range(1, 1002)]}, "ports has 1001 entries; at most 1000"),
        ({"mounts": ["/a:/x", "/b:/x/"]}, "mounts: /x is named twice as a place in the container; keep one"),
        ({"mounts": "/a:/b"}, "mounts must be a list, but is '/a:/b'"),
        ({"ports": ["80"]}, "ports: '80' is not HOST:CONTAINER, as in 8888:80"),
        ({"ports": ["0:80"]}, "ports: the machine's port is 0; it must be from 1 to 65535"),
        ({"ports": ["80:65536"]}, "ports: the container's port is 65536; it must be from 1 to 65535"),
        (
            {"ports": ["80:http"]},
            "ports: the container's port must be a whole number from 1 to 65535, but is 'http'",
        ),
        ({"ports": ["1:2", "1:3"]}, "ports: 1 of the machine is given out twice; keep one"),
        (
            {"ports": ["1:2"], "tasks": 2},
            "ports with several tasks: each would want the same port of the machine; use one task",
        ),
        (
            {"ports": ["1:2"], "array": "0-3"},
            "ports with several tasks: each would want the same port of the machine; use one task",
        ),
        (
            {"volumes": [{"claim": "data", "path": "/data"}]},
            (
                "volumes[0] is of a cluster; for this machine name a folder beside it, as in "
                "{claim: data, folder: /srv/data, path: /data}"
            ),
        ),
        (
            {"volumes": [{"claim": "data", "path": "/data", "folder": "srv"}]},
            "volumes[0].folder: 'srv' must be an absolute path of the host, without '..' and ':'",
        ),
        (
            {"volumes": [{"claim": "data", "path": "/data", "folder": "/srv/../etc"}]},
            "volumes[0].folder: '/srv/../etc' must be an absolute path of the host, without '..' and ':'",
        ),
        (
            {"volumes": [{"claim": "data", "path": "/data", "folder": "/srv"}], "mounts": ["/a:/data"]},
            "mounts and volumes: /data is named twice as a place in the container; keep one",
        ),
        (
            {"volumes": [{"claim": "data", "path": "/swell/x", "folder": "/srv"}]},
            "volumes[0].path: '/swell/x' cannot be a volume's place: / is the image, /swell is Swell's own",
        ),
        ({"workdir": "/a:b"}, "the folder '/a:b' has a ':' in it and cannot be mounted; use one without"),
    ],
)
def test_what_cannot_be_is_refused_and_said_why(spec: dict[str, Any], message: str) -> None:
    image = {} if spec.keys() <= {"mounts", "ports"} and "without an image" in message else {"image": IMAGE}
    assert refusal(manifest({"command": ["true"], **image, **spec})) == message
