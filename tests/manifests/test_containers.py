"""An image, what is mounted and which ports are open: what may be asked, and what is said otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from swell.model.job import Container, JobSpec, Mount

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


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"mounts": ["/a:/b"]},
            "mounts without an image: a plain process sees the whole machine; add image, or drop it",
        ),
        ({"ports": ["1:1"]}, "ports without an image: a plain process sees the whole machine; add image, or drop it"),
        ({"image": ""}, "image must be an image's name, as in docker.io/pytorch/pytorch:2.4, but is text: ''"),
        ({"image": "--privileged"}, "image '--privileged' is not a name: it begins with '-' or has a space in it"),
        ({"image": "a b"}, "image 'a b' is not a name: it begins with '-' or has a space in it"),
        ({"image": "a" * 600}, "image is longer than 512 bytes; no registry has such a name"),
        ({"mounts": ["data:/data"]}, "mounts: 'data' is no full path of the host; write it from / on, without '..'"),
        (
            {"mounts": ["/data:data"]},
            "mounts: 'data' is no full path of the container; write it from / on, without '..'",
        ),
        ({"mounts": ["/a/../b:/c"]}, "mounts: '/a/../b' is no full path of the host; write it from / on, without '..'"),
        ({"mounts": ["/data"]}, "mounts: '/data' is not /host/path:/inside or /host/path:/inside:ro"),
        ({"mounts": ["/a:/b:exec"]}, "mounts: '/a:/b:exec' is not /host/path:/inside or /host/path:/inside:ro"),
        ({"mounts": ["/a:/"]}, "mounts: '/' cannot be a mount's place: / is the image, /swell is Swell's own"),
        (
            {"mounts": ["/a:/swell/sdk"]},
            "mounts: '/swell/sdk' cannot be a mount's place: / is the image, /swell is Swell's own",
        ),
        ({"mounts": ["/a:/x", "/b:/x/"]}, "mounts: /x is named twice as a place in the container; keep one"),
        ({"mounts": "/a:/b"}, "mounts must be a list, but is text: '/a:/b'"),
        ({"ports": ["80"]}, "ports: '80' is not HOST:CONTAINER, as in 8888:80"),
        ({"ports": ["0:80"]}, "ports: the machine's port is 0; it must be from 1 to 65535"),
        ({"ports": ["80:65536"]}, "ports: the container's port is 65536; it must be from 1 to 65535"),
        (
            {"ports": ["80:http"]},
            "ports: the container's port must be a whole number from 1 to 65535, but is text: 'http'",
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
        ({"workdir": "/a:b"}, "the folder '/a:b' has a ':' in it and cannot be mounted; use one without"),
    ],
)
def test_what_cannot_be_is_refused_and_said_why(spec: dict[str, Any], message: str) -> None:
    image = {} if spec.keys() <= {"mounts", "ports"} and "without an image" in message else {"image": IMAGE}
    assert refusal(manifest({"command": ["true"], **image, **spec})) == message
