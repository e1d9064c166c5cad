"""What a worker is told on its command line, and how others write that line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from swell.errors import Rejected
from swell.machine.worker_options import FLAGS, FlagKind, WorkerOptions, read_options

LEAST = {"server": "https://box.lab:8443", "token_file": "/t/token", "folder": "/w"}
ALL = WorkerOptions(
    server="https://box.lab:8443",
    token_file=Path("/t/token"),
    folder=Path("/w"),
    name="n1",
    address="fe80::1",
    fingerprint="AB:CD",
    ca=Path("/ca.pem"),
    insecure_http=True,
    cpus_milli=1500,
    memory_mib=2048,
    gpus=0,
    gpu_memory_mib=1024,
    container_command="podman --remote",
    container_options="--ulimit nofile=1",
    task_processes_max=100,
    tag="big",
    tag_exclusive=True,
    group="vision",
    idle_s=600,
    runs_max=3,
    exits_on_exception=True,
    passes_termination=True,
    preemptible=True,
    folder_mib_max=10240,
    check_in_s=5,
    lease_s=120,
    users_runtime=Path("/run/users"),
    jobs_sockets=Path("/s"),
)


def said(words: list[str]) -> dict[str, object]:
    """As a command line is read."""
    by_name = {f"--{flag.name}": flag for flag in FLAGS}
    found: dict[str, object] = {}
    rest = iter(words)
    for word in rest:
        flag = by_name[word]
        found[flag.field] = True if flag.kind is FlagKind.SWITCH else next(rest)
    return found


@pytest.mark.parametrize("options", [ALL, read_options(LEAST), replace(ALL, gpus=4, cpus_milli=None, tag="x")])
def test_what_is_rendered_is_read_back_the_same(options: WorkerOptions) -> None:
    assert read_options(said(options.words())) == options


def test_what_is_not_said_is_not_rendered() -> None:
    words = ["--server", "https://box.lab:8443", "--token-file", "/t/token", "--folder", "/w"]
    assert read_options(LEAST).words() == words


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"server": None}, "a worker needs --server URL"),
        ({"token_file": None}, "a worker needs --token-file FILE"),
        ({"folder": None}, "a worker needs --folder DIR"),
        ({"cpus_milli": "many"}, "--cpus 'many' cannot be read"),
        ({"memory_mib": "8"}, "--memory '8' cannot be read: '8' has no unit"),
        ({"gpus": "-1"}, "--gpus '-1' cannot be read: write a whole number"),
        ({"gpus": "²"}, "--gpus '²' cannot be read"),
        ({"idle_s": "nan"}, "--idle-seconds 'nan' cannot be read"),
        ({"idle_s": "0"}, "--idle-seconds '0' cannot be read"),
        ({"name": "a b"}, "--name 'a b' cannot be read"),
        ({"address": "host:80/x"}, "--address 'host:80/x' cannot be read"),
        ({"tag": "a_b"}, "--tag 'a_b' cannot be read: write letters, digits and '-'"),
        ({"tag_exclusive": True}, "--tag-exclusive keeps jobs without the tag away, and no tag is given"),
        ({"check_in_s": "90"}, "--checkin-frequency-seconds 90 is too long"),
        ({"lease_s": "10"}, "--lease-seconds 10 is less than two check-ins"),
        ({"lease_s": "9", "check_in_s": "1"}, "--lease-seconds 9 is refused by servers; say a number between 10 and"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_name_of_the_flag(change: dict[str, object], message: str) -> None:
    with pytest.raises(Rejected) as refused:
        read_options({**LEAST, **change})
    assert str(refused.value).startswith(message)
