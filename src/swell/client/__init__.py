"""The typed Python client, and how a server is found or started. Standard library only, and quick to import.

    import swell.client

    client = swell.client.connect()                    # starts a server on this machine if none runs
    job = client.submit(["python", "train.py"], gpus=2, time="2h")
    print(job.why())
    job.wait()
    print(job.state, job.exit_code, b"".join(job.logs()).decode())

Public: `connect`, `Client`, `Job`, `Reason`. It speaks the HTTP API and nothing else: no planner, no store.
"""

from swell.client.client import Client
from swell.client.embedded import connect
from swell.client.job import Job, Reason

__all__ = ["Client", "Job", "Reason", "connect"]
