"""`swell service`: what systemd is told, and what is left behind."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from swell.cli.service import command


@pytest.fixture
def as_root() -> None:
    assert os.geteuid() == 0, "only root may install a service: sudo make test"


def service(*words: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert done.exception is None, done.output
    return done.return_value, done.output.splitlines()


@pytest.mark.slow  # not because it is: `make check` is for everybody
def test_a_unit_leaves_tasks_alone_and_starts_the_server_in_the_foreground(as_root, tmp_path):
    code, said = service("install", "--root", str(tmp_path))
    unit = tmp_path / "etc/systemd/system/swell.service"
    lines = unit.read_text().splitlines()
    assert code == 0
    assert said[0] == f"swell: wrote {unit}; jobs and logs are stored in {tmp_path}/var/lib/swell"
    assert "systemctl daemon-reload && systemctl enable --now swell" in said[1]
    assert {
        "KillMode=process",
        "Delegate=yes",
        "RuntimeDirectory=swell",
        "RuntimeDirectoryPreserve=yes",
        "Restart=on-failure",
        "WantedBy=multi-user.target",
    } <= set(lines)
    [start] = [line for line in lines if line.startswith("ExecStart=")]
    assert start.endswith("/swell service run --state /var/lib/swell --socket /run/swell/swell.sock")
    assert unit.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "var/lib/swell").stat().st_mode & 0o777 == 0o711


@pytest.mark.slow  # not because it is: `make check` is for everybody
def test_what_is_removed_is_the_unit_and_never_the_data(as_root, tmp_path):
    service("install", "--root", str(tmp_path))
    kept = tmp_path / "var/lib/swell/swell.db"
    kept.write_text("jobs")
    code, said = service("uninstall", "--root", str(tmp_path))
    assert (code, kept.read_text()) == (0, "jobs")
    unit = tmp_path / "etc/systemd/system/swell.service"
    assert not unit.exists()
    assert said == [f"swell: removed {unit}; jobs, logs and checkpoints are still in {tmp_path}/var/lib/swell"]
    assert service("uninstall", "--root", str(tmp_path))[1] == [
        f"swell: the service is not installed: {tmp_path}/etc/systemd/system/swell.service does not exist"
    ]


def test_status_says_what_is_there_and_that_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("SWELL_SOCKET", str(tmp_path / "no.sock"))
    code, said = service("status", "--root", str(tmp_path))
    assert code == 1
    assert [line.partition(":")[0] for line in said] == ["unit", "process", "socket", "answer"]
    assert said[2] == f"socket:     {tmp_path}/no.sock does not exist"
    assert said[3].startswith("answer:     none: the box server of this machine")
