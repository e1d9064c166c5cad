"""docker cannot serve a box's users, by design: who may talk to its engine is root. That is said, not tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from box.machine import Machine, refuse_what_is_missing
from e2e.disks import need

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def box() -> Iterator[Machine]:
    refuse_what_is_missing()
    need("docker", "docker.io")
    with Machine(container_command="docker") as machine:
        yield machine


def test_an_image_is_refused_and_podman_is_named(box: Machine) -> None:
    done = box.people[0].swell("run", "--name", "boxed", "--image", "python:3.12", "--", "true")
    assert done.code == 125
    assert done.stderr.endswith(
        "job 'boxed' wants the image 'python:3.12', but no machine here has podman, which runs containers as "
        "their users (docker cannot: access to its daemon is root access); ask the administrator to install it "
        "and restart the service, or leave out the image\n"
    ), done


def test_no_machine_of_a_box_offers_docker(box: Machine) -> None:
    assert [node["container_runtime"] for node in box.client().nodes()] == [""]


def test_the_doctor_says_so_to_users(box: Machine) -> None:
    found = box.people[0].swell("doctor", "--containers", "-o", "json").json
    [line] = [finding for finding in found if finding["topic"] == "containers"]
    assert [finding["topic"] for finding in found if finding["level"] == "problem"] == ["containers"]
    assert [finding["text"].split(",")[1] for finding in found if finding["topic"] == "server"] == [f" at {box.socket}"]
    assert (line["level"], "jobs with an image are refused" in line["text"]) == ("problem", True), line
