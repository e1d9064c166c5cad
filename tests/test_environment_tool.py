"""`tools/environment.py` installs packages for tests and starts none of their services."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

TOOL = Path(__file__).parents[1] / "tools/environment.py"


def _tool():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("environment_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_services_are_forbidden_while_packages_are_installed_and_allowed_again_after(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with _tool().no_service_starts(policy):
        assert subprocess.run([policy, "docker", "start"], check=False).returncode == 101
    assert not policy.exists()


def test_what_somebody_has_decided_already_stays(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("theirs")
    with _tool().no_service_starts(policy):
        assert policy.read_text() == "theirs"
    assert policy.read_text() == "theirs"
