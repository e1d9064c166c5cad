"""Folders that travel: to a worker in a folder of its own, and what was written there comes back."""

from __future__ import annotations

import functools
import hashlib
import http.server
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote_worker import RemoteWorker
from server import Server, up_before_and_empty_after

pytestmark = pytest.mark.slow

SCRIPT = """
import os, pathlib, sys
print(pathlib.Path("data/in.txt").read_text(), os.path.islink("link"), sorted(os.listdir(".")), flush=True)
pathlib.Path("results").mkdir()
pathlib.Path("results/out.txt").write_text("made on " + os.environ["NODELIST"])
pathlib.Path("junk.bin").write_bytes(b"x" * 1000)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("files"), gpus=0, cpus=1) as server:
        yield server


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    yield from up_before_and_empty_after(shared)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data/in.txt").write_text("hello")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "big.ckpt").write_bytes(b"c" * 10_000)
    (folder / "large.bin").write_bytes(bytes(range(256)) * 6000)
    (folder / ".swellignore").write_text("*.ckpt\n")
    (folder / "link").symlink_to("data/in.txt")
    return folder


def test_a_folder_travels_to_another_machine_and_its_outputs_come_back(
    server: Server, tmp_path: Path, project: Path
) -> None:
    """`second` has a folder of its own and reads nothing of this one."""
    words = ("run", "--cpus", "4", "--upload", "--workdir", str(project), "--output", "results/")
    with RemoteWorker(server, tmp_path, "second", "--cpus", "4") as worker:
        done = server.swell(*words, "--", "python3", "train.py")
        assert done.code == 0, done
        assert done.stdout == "hello True ['.swellignore', 'data', 'large.bin', 'link', 'train.py']\n"
        assert "4 files of 1.5 MB" in done.stderr, done.stderr
        again = server.swell(*words, "--", "python3", "train.py")
        assert "0.0 MB of them were new to the server" in again.stderr
        there = tmp_path / "fetched"
        fetched = server.swell("fetch", str(done.job), "--to", str(there))
        assert fetched.code == 0, fetched
        assert [path.name for path in there.rglob("*") if path.is_file()] == ["out.txt"]
        assert (there / "results/out.txt").read_text() == "made on second"
        refused = server.swell("fetch", str(done.job), "--to", str(there))
        assert (refused.code, "exists already" in refused.stderr) == (2, True)
        assert server.swell("fetch", "--force", str(done.job), "--to", str(there)).code == 0
        assert not list(worker.folder.glob(f"tasks/{done.job}.*/files"))


def test_on_the_servers_own_machine_nothing_is_copied_unless_asked(server: Server, project: Path) -> None:
    done = server.swell("run", "--workdir", str(project), "--", "pwd")
    assert (done.code, done.stdout) == (0, f"{project}\n")
    copied = server.swell("run", "--upload", "--workdir", str(project), "--", "sh", "-c", "pwd; ls")
    assert copied.code == 0
    assert copied.stdout.splitlines()[0].endswith(f"/tasks/{copied.job}.1/files")
    assert copied.stdout.splitlines()[1:] == ["data", "large.bin", "link", "train.py"]
    used = [path.name.partition("-")[0] for path in (server.state.files / "used").iterdir()]
    assert (used.count(str(copied.job)), used.count(str(done.job))) == (1, 0)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "a.csv").write_text("1,2\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{web.server_address[1]}"
        web.shutdown()


def test_inputs_come_from_addresses_and_from_this_machine(server: Server, tmp_path: Path, address: str) -> None:
    own = tmp_path / "own.txt"
    own.write_text("mine\n")
    inputs = ("--input", f"{address}/a.csv=data/b.csv", "--input", f"{own}=in/own.txt")
    (tmp_path / "empty").mkdir()
    words = ("--upload", "--workdir", str(tmp_path / "empty"), *inputs, "--", "cat", "data/b.csv", "in/own.txt")
    done = server.swell("run", *words)
    assert (done.code, done.stdout) == (0, "1,2\nmine\n"), done


def test_an_input_that_is_not_what_it_should_be_fails_the_job_with_words(
    server: Server, tmp_path: Path, address: str
) -> None:
    def job(name: str, url: str, sha256: str) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            "apiVersion: swell/v1\nkind: Job\nspec:\n  command: [cat, a]\n"
            f"  inputs: [{{url: {url}, to: a, sha256: {sha256}}}]\n"
        )
        return str(path)

    good = hashlib.sha256(b"1,2\n").hexdigest()
    assert server.swell("submit", "--wait", job("good", f"{address}/a.csv", good)).code == 0
    other = server.swell("submit", "--wait", job("other", f"{address}/a.csv", "0" * 64))
    assert other.code == 125
    assert (
        f"has the SHA-256 {good}, and the job names {'0' * 64}" in server.swell("why", other.stdout.split()[0]).stdout
    )
    gone = server.swell("submit", "--wait", job("gone", f"{address}/gone", good))
    assert gone.code == 125
    assert "cannot be fetched: 404" in server.swell("why", gone.stdout.split()[0]).stdout


def test_a_folder_that_is_too_large_is_refused_before_it_is_read(server: Server, tmp_path: Path) -> None:
    chunks = server.state.files / "chunks"
    before = sorted(chunks.rglob("*"))
    folder = tmp_path / "large"
    folder.mkdir()
    with (folder / "hole").open("wb") as file:
        file.truncate(10_000_000_001)
    refused = server.swell("run", "--upload", "--workdir", str(folder), "--", "true")
    assert refused.code == 125
    assert "the folder has more than 10 GB of files, the most that is sent; name what the" in refused.stderr
    assert sorted(chunks.rglob("*")) == before


@pytest.mark.parametrize("words", [("--output", "results/"), ("--input", "{own}=own.txt"), ("--input", "{url}/a.csv")])
def test_a_job_with_inputs_or_outputs_runs_in_a_copy_of_the_whole_folder(
    server: Server, tmp_path: Path, project: Path, address: str, words: tuple[str, str]
) -> None:
    """With --output alone it ran in an empty folder: its program was not there, and what it wrote was deleted."""
    (tmp_path / "own.txt").write_text("mine\n")
    named = [word.format(own=tmp_path / "own.txt", url=address) for word in words]
    done = server.swell("run", "--workdir", str(project), *named, "--", "sh", "-c", "mkdir results; ls")
    assert done.code == 0, done
    assert {"data", "large.bin", "link", "results", "train.py"} <= set(done.stdout.splitlines())
    says_what_is_lost = "no file that it writes there is kept; name files with --output" in done.stderr
    says_how_to_get_them = f"to get its outputs, run: swell fetch {done.job}" in done.stderr
    assert (says_what_is_lost, says_how_to_get_them) == (words[0] == "--input", words[0] == "--output")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--output", "../x"), "leads out of the job's own folder"),
        (("--input", "a=c", "--input", "b=c"), "two --input options write to 'c'"),
        (("--output", "x", "--image", "busybox"), "do not work with --image"),
    ],
)
def test_files_that_cannot_be_sent_or_brought_back_are_refused_before_anything_is_sent(
    server: Server, project: Path, words: tuple[str, ...], says: str
) -> None:
    refused = server.swell("run", "--workdir", str(project), *words, "--", "true")
    assert (refused.code, refused.stdout) == (125, "")
    assert says in refused.stderr


def test_an_address_that_does_not_answer_is_named_while_the_job_waits_for_it(server: Server, project: Path) -> None:
    running = server.spawn("run", "--workdir", str(project), "--input", "http://127.0.0.1:1/a=a", "--", "true")
    assert running.stderr is not None
    said = next(line for line in running.stderr if b" is starting: " in line)
    assert b"127.0.0.1" in said
    running.send_signal(signal.SIGINT)
    running.communicate()


def test_a_job_file_with_outputs_and_no_folder_says_that_it_runs_in_an_empty_one(
    server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "apiVersion: swell/v1\nkind: Job\nmetadata: {name: alone}\nspec: {command: [pwd], outputs: [results/]}\n"
    )
    done = server.swell("submit", "-f", str(file), "--wait")
    assert done.code == 0
    assert "submit it with --upload DIR" in done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "import os\nfor _ in range(3000):\n  os.mkdir('d'*20); os.chdir('d'*20)\nopen('a', 'w').close()",
            "lies more than 100 folders deep",
        ),
        ("import os\nos.symlink('/etc', 'a')", "is absolute"),
        ("import os\nos.mkfifo('a')", "is a device, a pipe or a socket"),
    ],
)
def test_a_job_whose_outputs_cannot_be_sent_ends_and_says_why(
    server: Server, tmp_path: Path, script: str, said: str
) -> None:
    """It was tried again every five seconds for ever; of others nobody was told."""
    folder = tmp_path / "made"
    folder.mkdir()
    done = server.swell("run", "--upload", "--workdir", str(folder), "--output", "*", "--", "python3", "-c", script)
    assert done.code == 0, done
    shown = server.swell("show", str(done.job)).stdout
    assert "TaskTrouble" in shown
    assert "were not sent: " in shown
    assert said in shown
