"""What must not be forgotten: jobs, attempts, tasks, events, environments. SQLite, embedded.

Public: `Store`, `open_store`, and the records it hands out. The store knows `model` and nothing of the planner;
it makes no decision. One thread writes, and commits once for everybody who waits (`writer.py`); a reply to
"accepted" comes after the commit has reached the disk. Nothing outside this package writes SQL.
"""

from swell.store.doors import DoorRecord
from swell.store.records import AttemptRecord, EventRecord, JobRecord, NewJob, Outline, TaskRecord
from swell.store.store import Changes, Store, no_job, open_store
from swell.store.tokens import TokenRecord

__all__ = [
    "AttemptRecord",
    "Changes",
    "DoorRecord",
    "EventRecord",
    "JobRecord",
    "NewJob",
    "Outline",
    "Store",
    "TaskRecord",
    "TokenRecord",
    "no_job",
    "open_store",
]
