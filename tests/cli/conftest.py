from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def state(tmp_path, monkeypatch) -> Path:
    """A state folder that does not exist yet."""
    folder = tmp_path / "state"
    monkeypatch.setenv("SWELL_STATE", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder
