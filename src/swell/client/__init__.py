"""The typed Python client, and how a server is found or started. Standard library only, and quick to import.

    import swell.client

    client = swell.client.connect()                    # starts a server on this machine if none runs
    job = client.submit(["python", "train.py"], gpus=2, time="2h")
    print(job.why())
    job.wait()
    print(job.state, job.exit_code, b"".join(job.logs()).decode())

    with swell.client.Executor(gpus=1) as executor:    # functions as jobs, in the way of concurrent.futures
        losses = list(executor.map(train, [0.1, 0.01]))

Public: `connect`, `Client`, `Job`, `Reason`, `Executor`, `CallFailed`. It speaks the HTTP API and nothing else: no
planner, no store.
"""

from typing import TYPE_CHECKING, Any

from swell.client.client import Client
from swell.client.embedded import connect
from swell.client.job import Job, Reason

if TYPE_CHECKING:
    from swell.client.executor import CallFailed, Executor

__all__ = ["CallFailed", "Client", "Executor", "Job", "Reason", "connect"]


def __getattr__(name: str) -> Any:
    """Every command imports this package, and none of them needs an executor."""
    if name not in ("CallFailed", "Executor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from swell.client import executor

    return getattr(executor, name)
