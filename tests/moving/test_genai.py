"""genai's commands and services under their own names, as they are typed and configured."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest
import yaml

from api.doors.foreign import Foreign, of_job

from .shell import Shell

EXAMPLES = Path(__file__).parents[2] / "examples/kubernetes"
SCALED = (0, "Scaled\n")


def manifest(folder: Path, name: str, low: int, high: int) -> str:
    """A demo job with another name and other GPUs."""
    document = yaml.safe_load((EXAMPLES / "genai-job1.yaml").read_text())
    document["metadata"]["name"] = name
    [container] = document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"nvidia.com/gpu": low}, "limits": {"nvidia.com/gpu": high}}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def deploy(shell: Shell, folder: Path, name: str, low: int, high: int, *words: str) -> int:
    done = shell.type("genai-manager", "deploy", *(words or ("-f",)), manifest(folder, name, low, high))
    assert done.code == 0, done
    return int(done.stdout.split()[-1])


def half(shell: Shell, folder: Path) -> tuple[int, int]:
    """Two jobs on two GPUs each, of which the second could use all four."""
    small, wide = (deploy(shell, folder, name, 2, high, "--filename") for name, high in (("small", 2), ("wide", 4)))
    for job in (small, wide):
        shell.service.worker.begin(job)
    return small, wide


@pytest.mark.parametrize("words", [(), ("--name", "wide"), ("-n", "wide")])
def test_a_job_is_scaled_whether_it_is_named_or_chosen(shell: Shell, tmp_path: Path, words: tuple[str, ...]) -> None:
    small, wide = half(shell, tmp_path)
    shell.service.worker.end(small)
    done = shell.type("genai-manager", "scale", *words)
    assert (done.code, done.stdout) == SCALED
    shell.service.worker.until_asked(wide, is_stopping=True)
    shell.service.worker.gone(wide, 143, cause="stopped")
    assert len(shell.service.worker.until_asked(wide, 2)["lanes"][0]["devices"]) == 4


def test_several_jobs_are_deleted_and_none_when_one_of_them_is_not_there(shell: Shell, tmp_path: Path) -> None:
    one, two = (deploy(shell, tmp_path, name, 99, 99, "--wait-for-nodes", "-f") for name in ("one", "two"))
    missing = shell.type("genai-manager", "delete", "--name", "one", "-n", "nobody", "-n", "two")
    assert (missing.code, missing.stdout) == (2, "")
    assert "there is no job 'nobody'" in missing.stderr
    assert [shell.service.store.job(job).state for job in (one, two)] == ["queued", "queued"]
    done = shell.type("genai-manager", "delete", "--name", "one", "--name", "two")
    assert (done.code, done.stderr) == (0, f"swell: job {one} (one) is deleted\nswell: job {two} (two) is deleted\n")
    assert shell.service.store.listing(ended_since=None) == ([], 0)


def test_deploy_says_what_was_asked_for_and_allocated_and_what_a_job_waits_for(shell: Shell, tmp_path: Path) -> None:
    first = shell.type("genai-manager", "deploy", "-f", manifest(tmp_path, "first", 2, 3))
    assert (first.code, [line.split() for line in first.stdout.splitlines()]) == (
        0,
        [["NAME", "GPUS", "ALLOCATED", "JOB"], ["first", "2..3", "3", "1"]],
    )
    file = tmp_path / "first.yaml"
    ignored = "this machine runs processes, not pods, so these fields have no effect: image"
    assert first.stderr == f"swell: {file}: {ignored}\n"
    second = shell.type("genai-manager", "deploy", "-f", manifest(tmp_path, "second", 2, 4))
    assert (second.code, [line.split() for line in second.stdout.splitlines()]) == (
        0,
        [["NAME", "GPUS", "ALLOCATED", "JOB"], ["second", "2..4", "-", "2"]],
    )
    waits = "swell: job 2 (second) waits: it wants at least 1 CPU, 2 GPUs; free here is 63 CPUs, 1 GPU"
    assert waits in " ".join(second.stderr.split())


def test_a_name_that_a_job_has_is_refused_until_that_one_has_ended(shell: Shell, tmp_path: Path) -> None:
    """The same file twice gave two jobs with one output folder, and nobody could say which of them a name meant."""
    first = deploy(shell, tmp_path, "twice", 1, 2)
    shell.service.worker.begin(first)
    file = manifest(tmp_path, "twice", 1, 2)
    again = shell.type("genai-manager", "deploy", "-f", file)
    taken = (
        f"there is a job named 'twice' already: job {first}, which is running; delete that one first, or choose "
        "another metadata.name"
    )
    assert (again.code, again.stdout, again.stderr.splitlines()[-1]) == (2, "", f"swell: {file}: {taken}")
    manager = Foreign(shell.type("swell", "door", "address", "genai").stdout.strip())
    body = Path(manifest(tmp_path, "twice", 1, 2)).read_bytes()
    assert manager.ask("POST", "/deploy", body) == (409, {"error": taken})
    shell.service.worker.end(first)
    assert deploy(shell, tmp_path, "twice", 1, 2) > first


def test_a_name_that_several_jobs_have_is_not_deleted(shell: Shell, tmp_path: Path) -> None:
    """The newest of them was, without a word, and the others ran on."""
    one, two = (shell.service.submit("both", gpus="1") for _ in range(2))
    alone = deploy(shell, tmp_path, "alone", 1, 2)
    refused = shell.type("genai-manager", "delete", "-n", "alone", "-n", "both")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr == f"swell: 2 jobs are named 'both'; name the job by id: {two}, {one}\n"
    assert {job.id for job in shell.service.store.active()} == {one, two, alone}


def test_deploy_refuses_what_could_never_run_here(shell: Shell, tmp_path: Path) -> None:
    file = manifest(tmp_path, "wide", 5, 8)
    done = shell.type("genai-manager", "deploy", "-f", file)
    assert (done.code, done.stdout, done.stderr.splitlines()[-1]) == (
        2,
        "",
        (
            f"swell: {file}: job 'wide' can never run here: it wants at least 1 CPU, 5 GPUs, but this machine has 64 "
            "CPUs, 4 GPUs; submit it with resources.requests of nvidia.com/gpu: 4 or less; to queue it until a "
            "node is large enough, add --wait-for-nodes"
        ),
    )
    assert shell.service.store.listing(ended_since=None) == ([], 0)


def test_a_job_without_a_notifier_is_scaled_up_at_once_when_another_has_completed(shell: Shell, tmp_path: Path) -> None:
    """The original's default. Here it kept its two GPUs for ever, because it reports no checkpoint; then for its first
    two minutes."""
    small, wide = half(shell, tmp_path)
    shell.service.worker.end(small)
    shell.service.worker.until_asked(wide, is_stopping=True)
    shell.service.worker.gone(wide, 143, cause="stopped")
    assert len(shell.service.worker.until_asked(wide, 2)["lanes"][0]["devices"]) == 4


def test_a_width_asked_for_by_hand_is_given_at_once_and_the_loss_is_said(shell: Shell, tmp_path: Path) -> None:
    """Nothing happened for two minutes, and nothing said so."""
    job = deploy(shell, tmp_path, "wide", 1, 4)
    shell.service.worker.begin(job)
    done = shell.type("swell", "scale", "wide", "2")
    assert (done.code, done.stderr) == (
        0,
        (
            f"swell: job {job} (wide) gets width 2 as soon as resources are free; it restarts for this, and "
            "loses the work that it has not saved since it started\n"
        ),
    )
    shell.service.worker.until_asked(job, is_stopping=True)
    shell.service.worker.gone(job, 143, cause="stopped")
    assert len(shell.service.worker.until_asked(job, 2)["lanes"][0]["devices"]) == 2


@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_pods_and_jobs_keep_their_width_because_they_would_begin_from_nothing(
    shell: Shell, tmp_path: Path, kind: str
) -> None:
    """They were stopped and started again to be wider, although nobody had said that they can go on."""
    container = {"name": "main", "image": "x", "command": ["sleep", "600"]}
    resources = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}
    pod = {"restartPolicy": "Never", "containers": [{**container, "env": [], "resources": resources}]}
    spec = pod if kind == "Pod" else {"template": {"spec": pod}}
    document = {"apiVersion": "v1" if kind == "Pod" else "batch/v1", "kind": kind, "metadata": {"name": "range"}}
    file = tmp_path / "range.yaml"
    file.write_text(yaml.safe_dump({**document, "spec": spec}))
    done = shell.type("genai-manager", "deploy", "-f", str(file))
    assert done.code == 0, done
    job = int(done.stdout.split()[-1])
    assert shell.service.ask("GET", f"/jobs/{job}/show").json["spec"]["resize"] == "at-checkpoint"


def test_deploy_over_http_is_what_main_py_did_inside_the_managers_pod(shell: Shell, tmp_path: Path) -> None:
    """The original's own to-do."""
    address = shell.type("swell", "door", "address", "genai").stdout.strip()
    manager = Foreign(address)
    file = Path(manifest(tmp_path, "sent", 2, 3)).read_text()
    status, answer = manager.ask("POST", "/deploy", file.encode())
    told = {field: answer["jobs"][0][field] for field in ("job_name", "gpu_req", "gpu_lim", "gpu_assigned", "job_id")}
    assert (status, answer["message"], answer["notes"], told) == (
        201,
        "Deployed",
        ["this machine runs processes, not pods, so these fields have no effect: image"],
        {"job_name": "sent", "gpu_req": 2, "gpu_lim": 3, "gpu_assigned": 3, "job_id": 1},
    )
    status, answer = manager.ask("POST", "/deploy", file.replace("nvidia.com/gpu: 2", "nvidia.com/gpu: 0.5").encode())
    assert (status, "'0.5' is a part of a GPU" in answer["error"]) == (400, True)
    wide = Path(manifest(tmp_path, "wide", 5, 8)).read_text()
    status, answer = manager.ask("POST", "/deploy", wide.encode())
    assert (status, answer["error"]) == (
        400,
        (
            "job 'wide' can never run here: it wants at least 1 CPU, 5 GPUs, but this machine has 64 CPUs, 4 GPUs; "
            "submit it with resources.requests of nvidia.com/gpu: 4 or less"
        ),
    )
    assert manager.ask("POST", "/deploy", b"\xff")[0] == 400
    assert manager.ask("POST", "/deploy", b"#" * (1024 * 1024 + 1))[0] == 413
    assert of_job(shell.service, 1).ask("POST", "/deploy", file.encode())[0] == 403


def test_a_variable_from_a_secret_is_given_with_the_command(shell: Shell, tmp_path: Path) -> None:
    """There the Secret existed. Here the file was refused unless the shell had the variable, and over HTTP there is no
    shell."""
    file = Path(manifest(tmp_path, "secret", 1, 2))
    document = yaml.safe_load(file.read_text())
    [container] = document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    source = {"secretKeyRef": {"name": "git", "key": "pat"}}
    container["env"] = [{"name": "GIT_PAT", "valueFrom": source}]
    file.write_text(yaml.safe_dump(document))
    missing = shell.type("genai-manager", "deploy", "-f", str(file))
    manager = Foreign(shell.type("swell", "door", "address", "genai").stdout.strip())
    status, answer = manager.ask("POST", "/deploy", file.read_bytes())
    about = "GIT_PAT comes from a Secret, and this machine has none; "
    assert (missing.code, missing.stderr.partition(about)[2]) == (
        2,
        (
            "give it with --env GIT_PAT=…, set GIT_PAT in your shell (a job has its caller's environment), or write a "
            "value\n"
        ),
    )
    assert (status, answer["error"].partition(about)[2]) == (
        400,
        "deploy the file with a command (genai-manager deploy --env GIT_PAT=…), or write a value into it",
    )
    done = shell.type("genai-manager", "deploy", "--env", "GIT_PAT=abc", "-f", str(file))
    assert done.code == 0, done
    job = shell.service.store.job(int(done.stdout.split()[-1]))
    assert shell.service.store.environment(job.environment)["GIT_PAT"] == "abc"
    by_file = shell.type("swell", "submit", "--env", "GIT_PAT=abc", "-f", str(file))
    assert by_file.code == 0, by_file


def test_the_monitor_is_where_an_admin_has_opened_its_port(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    opened = shell.type("swell", "door", "open", "genai", "--port", port)
    assert (opened.code, opened.stdout) == (0, f"http://127.0.0.1:{port}\n"), opened
    monitor = Foreign(f"http://127.0.0.1:{port}")
    assert monitor.ask("GET", "/freegpu") == (200, {"box": 4})
    assert monitor.ask("GET", "/resourcequota/fms-tuning") == (200, {"limit": "4", "used": "0"})


def test_nobody_is_asked_to_scale_a_job_up_after_its_checkpoint(tmp_path, monkeypatch) -> None:
    """What the services of the original were configured with is there, and has nothing to do."""
    with socket.create_server(("127.0.0.1", 0)) as manager:
        monkeypatch.setenv("MANAGER_API_URL", f"http://127.0.0.1:{manager.getsockname()[1]}/scale")
        monkeypatch.setenv("NEXT_CHECKPOINT_THRESHOLD", "60")
        with contextlib.closing(Shell(tmp_path)) as shell:
            grow_at_a_checkpoint(shell, tmp_path)
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.accept()


def grow_at_a_checkpoint(shell: Shell, folder: Path) -> None:
    """Of a job that only notifies, when another has made room: it is wider in its second attempt."""
    small, wide = half(shell, folder)
    notifier, now = of_job(shell.service, wide), time.time()

    def notify(done: int, at: float) -> None:
        told = {"job_name": "wide", "last_checkpoint_time": at, "completed_epochs": done, "total_epochs": 1000}
        assert notifier.ask("PUT", "/update_last_checkpoint", told)[0] == 200

    notify(1, now - 200)
    notify(2, now - 100)
    shell.service.worker.end(small)
    notify(3, now)
    shell.service.worker.until_asked(wide, is_stopping=True)
    shell.service.worker.gone(wide, 143, cause="stopped")
    assert len(shell.service.worker.until_asked(wide, 2)["lanes"][0]["devices"]) == 4
