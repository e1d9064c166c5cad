"""What is a task's container called?"""

from __future__ import annotations

from swell.model.job import AttemptId

SOCKET_NAME = "jobs.sock"  # what jobs with a network of their own report through
INSIDE = "/swell"  # the folder in a container that is ours


def container_name(store: str, attempt: AttemptId, index: int) -> str:
    """The same for the same task whoever asks: by it the container is stopped, entered and found again."""
    return f"swell-{store[:8]}-{attempt}-{index}"
