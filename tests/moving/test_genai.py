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


def deploy(shell: Shell, folder: Path, name: str, low: int, high: int, word: str = "-f") -> int:
    done = shell.type("genai-manager", "deploy", word, manifest(folder, name, low, high))
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
    one, two = (deploy(shell, tmp_path, name, 99, 99) for name in ("one", "two"))
    missing = shell.type("genai-manager", "delete", "--name", "one", "-n", "nobody", "-n", "two")
    assert (missing.code, missing.stdout) == (2, "")
    assert "there is no job 'nobody'" in missing.stderr
    assert [shell.service.store.job(job).state for job in (one, two)] == ["queued", "queued"]
    done = shell.type("genai-manager", "delete", "--name", "one", "--name", "two")
    assert (done.code, done.stderr) == (0, f"swell: job {one} (one) is deleted\nswell: job {two} (two) is deleted\n")
    assert shell.service.store.listing(ended_since=None) == ([], 0)


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
