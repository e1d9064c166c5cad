"""What `swell up` remembers of its options."""

from __future__ import annotations

import pytest

from swell.cli.up import settings


@pytest.mark.parametrize("taken_back", ["auto", "", " "])
def test_options_of_containers_are_taken_back_by_auto_or_by_saying_none(taken_back: str) -> None:
    """Incident: `--container-options ""` was remembered as it was, and no server started with that file any more."""
    assert settings(container_options=taken_back) == {"container_options": None}
    assert settings(container_command="docker", container_options="--pids-limit -1") == {
        "container_command": "docker",
        "container_options": "--pids-limit -1",
    }
