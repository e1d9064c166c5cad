"""What must not be forgotten: jobs, attempts, tasks, events, environments. SQLite, embedded.

Public: `Store`, `open_store`, and the records it hands out. The store knows `model` and nothing of the planner;
it makes no decision. One thread writes, and commits once for everybody who waits (`writer.py`); a reply to
"accepted" comes after the commit has reached the disk. Nothing outside this package writes SQL.
"""

from swell.store.accepting import Acceptance
from swell.store.changes import Changes
from swell.store.doors import DoorRecord
from swell.store.reading import no_job
from swell.store.records import AttemptRecord, EventRecord, JobRecord, JobStatus, NewJob, Outline, TaskRecord
from swell.store.store import Store, open_store
from swell.store.tokens import TokenRecord

__all__ = [
    "Acceptance",
    "AttemptRecord",
    "Changes",
    "DoorRecord",
    "EventRecord",
    "JobRecord",
    "JobStatus",
    "NewJob",
    "Outline",
    "Store",
    "TaskRecord",
    "TokenRecord",
    "no_job",
    "open_store",
]
