"""Where a running task is, for whoever may enter it; and images where nothing can run them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner

from api.service import USER, Service, submission
from swell.cli.root import swell


def test_of_a_running_task_its_machine_and_its_keeper_are_told(service: Service) -> None:
    job = service.submit(tasks=2)
    service.worker.begin(job)
    (service.state.tasks / f"{job}.1/1/begun.4711.1").touch()
    assert service.ask("GET", f"/jobs/{job}/exec?rank=1").json == {
        "node": "box",
        "pid": 4711,
        "container": None,
        "runtime": [],
        "runtime_folder": None,
    }
    assert service.ask("GET", f"/jobs/{job}/exec").json["pid"] is None, "rank 0 has not said who keeps it"
    words = f"task 2 of job {job} is not running; running tasks: 0, 1"
    assert service.ask("GET", f"/jobs/{job}/exec?rank=2").error == (404, "NotFound", words)
    service.ask("POST", f"/jobs/{job}/cancel")
    service.worker.end(job)


def test_what_does_not_run_cannot_be_entered(service: Service) -> None:
    job = service.submit("done")
    service.worker.begin(job)
    service.worker.end(job)
    words = f"job {job} (done) is succeeded: swell exec needs a running job; see `swell why {job}`"
    assert service.ask("GET", f"/jobs/{job}/exec").error == (409, "Conflict", words)


@pytest.fixture
def runtime(service: Service) -> Iterator[str]:
    """The worker says that it has one, from now on, with words that nobody may ever run."""
    told = "/tmp/evil/podman --root /tmp/evil"
    before, service.worker.node = service.worker.node, replace(service.worker.node, container_runtime=told)
    yield "podman"
    service.worker.node = before
    service.worker.sync()


def test_an_image_is_refused_where_no_machine_has_a_runtime(service: Service) -> None:
    job = service.submit()  # a machine has offered itself by the time it runs
    service.worker.begin(job)
    service.worker.end(job)
    words = (
        "job 'boxed' wants the image 'python:3.12', but no machine here has podman or docker; install "
        "one of them and restart the server (swell down, swell up -d), or leave out the image"
    )
    answer = service.ask("POST", "/jobs", submission("boxed", image="python:3.12"))
    assert answer.error == (422, "Rejected", words)


def test_a_task_in_a_container_is_entered_by_its_name(service: Service, runtime: str) -> None:
    service.worker.sync()
    plain = service.submit()
    service.worker.begin(plain)  # by now the controller has looked at what the worker said
    service.worker.end(plain)
    job = service.submit(image="python:3.12", mounts=["/data:/data:ro"])
    assert service.worker.until_asked(job)["container"] == {
        "image": "python:3.12",
        "mounts": [{"source": "/data", "target": "/data", "is_read_only": True}],
        "ports": [],
    }
    service.worker.version = 0
    service.worker.begin(job)
    found = service.ask("GET", f"/jobs/{job}/exec").json
    assert found["container"] == f"swell-{service.store.id[:8]}-{job}.1-0"
    assert (found["node"], found["runtime"]) == ("box", ["podman"]), "of a worker's words only which runtime it is"
    [node] = service.ask("GET", "/nodes").json["nodes"]
    assert node["container_runtime"] == runtime
    service.worker.end(job)


def test_a_task_on_another_machine_is_entered_there(service: Service) -> None:
    job = service.submit("far")
    service.worker.begin(job)
    service.state.token.write_text(USER)
    done = CliRunner().invoke(swell, ["exec", "--state", str(service.state), "far", "--", "true"])
    assert done.exit_code == 125
    assert (
        done.stderr
        == f"swell: job far runs on box, but this is {socket.gethostname()}; log in to that machine and run "
        "this command there\n"
    )
    service.worker.end(job)
