"""What `swell up` remembers of its options."""

from __future__ import annotations

import pytest

from swell.cli.settings import settings
from swell.errors import Rejected


@pytest.mark.parametrize("taken_back", ["auto", "", " "])
def test_options_of_containers_are_taken_back_by_auto_or_by_saying_none(taken_back: str) -> None:
    """Incident: `--container-options ""` was remembered as it was, and no server started with that file any more."""
    assert settings(container_options=taken_back) == {"container_options": None}
    assert settings(container_command="docker", container_options="--pids-limit -1") == {
        "container_command": "docker",
        "container_options": "--pids-limit -1",
    }


def test_a_policy_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert settings(policy="tiresias") == {"policy": "tiresias"}
    with pytest.raises(Rejected, match="there is no policy 'lottery'; there are: swell, fifo, backfill"):
        settings(policy="lottery")
