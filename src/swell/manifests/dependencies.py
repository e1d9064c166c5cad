"""Which jobs does it wait for?

`12`, `prepare`, `12:end`, `{job: prepare, on: end}`, or a list of these.
"""

from __future__ import annotations

import re

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.fields import describe, inside, refuse_unknown, shorten, take_choice
from swell.model.job import After, JobId

ON = ("success", "end")
AFTER_MAX = 1000  # each is looked at whenever one of them ends
ID = re.compile(r"[0-9]{1,18}")  # as many as the store can hold


def read_after(value: object, context: Context) -> tuple[After, ...]:
    if value is None:
        return ()
    entries = value if isinstance(value, list) else [value]
    if len(entries) > AFTER_MAX:
        raise Rejected(f"after names {len(entries)} jobs; at most {AFTER_MAX}: let one job wait for them, and name it")
    waits: dict[JobId, After] = {}
    for entry in entries:
        after = _read_one(entry, context)
        if waits.setdefault(after.job, after) != after:
            raise Rejected(f"after names job {after.job} twice, once for its end and once for its success; keep one")
    return tuple(waits[job] for job in sorted(waits))


def _read_one(entry: object, context: Context) -> After:
    if isinstance(entry, dict):
        refuse_unknown(entry, ("job", "on"), "after")
        job, on = entry.get("job"), entry.get("on", "success")
    elif isinstance(entry, str) and ":" in entry:
        job, _, on = entry.rpartition(":")
    else:
        job, on = entry, "success"
    return After(_job(job, context), on_any_end=take_choice(on, ON, "after: on") == "end")


def _job(value: object, context: Context) -> JobId:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise Rejected(f"after must name a job, as in 12, prepare or {{job: 12, on: end}}, but is {describe(value)}")
    ref = str(value).strip()
    if ref.lstrip("-").isdigit() and (ID.fullmatch(ref) is None or int(ref) < 1):
        raise Rejected(f"after: {shorten(ref)!r} is no job's id; ids are whole numbers from 1 on")
    if context.find_job is None:
        if ID.fullmatch(ref):
            return int(ref)
        raise Rejected(f"after: {shorten(ref)!r} is no id, and names are not known here; write the job's id")
    with inside("after: "):
        return context.find_job(ref)
