"""docker's containers belong to an engine that may be away: nothing is made up meanwhile, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server import Gate

from .containers import ContainerRuntime, ContainerServer, outside
from .docker import DockerEngine, docker_engine
from .test_containers import containers_line, kill_each

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    """One whose containers outlive it, as on machines where nobody wants to lose a job to an upgrade of docker."""
    with docker_engine("--live-restore", "--bridge=none") as made:
        yield made


@pytest.fixture
def box(tmp_path: Path, engine: DockerEngine) -> Iterator[ContainerServer]:
    with ContainerServer(tmp_path, ContainerRuntime("docker", env=engine.env)) as own:
        yield own
        assert own.left() == []


def waiting_job(box: ContainerServer, gate: Gate) -> int:
    script = f"echo before; read line < {gate}; echo after; exit 5"
    job = box.start("--mount", f"{gate.path.parent}:{gate.path.parent}", *box.shell(script))
    box.until_output(job, b"before")
    return job


def its_end(box: ContainerServer, job: int) -> tuple[object, ...]:
    document = box.until(job, "failed")
    said = b"".join(box.client().logs(job))
    return document["reason"]["code"], document["exit_code"], document["attempts"], said.splitlines()[0], said[-6:]


ENDED_BY_ITSELF = ("TaskFailed", 5, 1, b"before", b"after\n")


def test_a_job_goes_on_while_its_engine_is_replaced(box: ContainerServer, engine: DockerEngine, gate: Gate) -> None:
    """Incident: the client ended with the engine, nobody answered whether there is a container, and the job was said
    never to have started, while it went on with its GPUs."""
    job = waiting_job(box, gate)
    engine.stop()
    try:
        box.until_output(job, b"EOF")  # the client has noticed
        assert box.client().show(job)["state"] == "running"
    finally:
        engine.start()
    gate.open()
    assert its_end(box, job) == ENDED_BY_ITSELF


def test_a_worker_that_finds_no_engine_does_not_take_its_containers_for_ended(
    box: ContainerServer, engine: DockerEngine, gate: Gate
) -> None:
    job = waiting_job(box, gate)
    box.kill()
    box.kill("worker")
    kill_each(outside(box))
    engine.stop()
    try:
        box.up()
        assert box.until_true(job, lambda document: document["state"] != "unknown")["state"] == "running"
    finally:
        engine.start()
    gate.open()
    assert its_end(box, job) == ENDED_BY_ITSELF


def test_without_an_engine_a_job_fails_at_once_and_says_so(tmp_path: Path, box: ContainerServer) -> None:
    image = ("--image", box.runtime.image)
    done = box.swell("run", *image, "--", "true", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert (done.code, "Cannot connect to the Docker daemon" in done.stderr) == (125, True), done


def test_one_that_is_cancelled_while_its_engine_is_away_ends_and_only_its_dead_container_waits_for_the_engine(
    box: ContainerServer, engine: DockerEngine, gate: Gate
) -> None:
    job = waiting_job(box, gate)
    first = box.inspect(job)["State"]["Pid"]
    engine.stop()
    try:
        assert box.swell("cancel", "--grace", "0s", str(job)).code == 0
        box.until(job, "cancelled")
        assert not Path(f"/proc/{first}").exists()
    finally:
        engine.start()
    [dead] = box.left()
    assert " Exited (137) " in dead
    assert box.runtime.call("rm", dead.split()[0]).returncode == 0


def test_the_doctor_says_when_there_is_no_engine_and_what_to_do(tmp_path: Path, box: ContainerServer) -> None:
    found = containers_line(box, DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert found["level"] == "problem"
    assert "Cannot connect to the Docker daemon" in found["text"]
    assert found["next"] == "start docker's engine (sudo systemctl start docker), or install podman"
