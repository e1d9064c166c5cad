"""Which jobs does it wait for?

`12`, `prepare`, `12:end`, `{job: prepare, on: end}`, or a list of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from swell.errors import NotFound, Rejected
from swell.manifests.context import Context
from swell.manifests.fields import describe, inside, refuse_unknown, shorten, take_choice, take_mapping
from swell.model.job import After, JobId

ON = ("success", "end")
AFTER_MAX = 1000  # each is looked at whenever one of them ends
ID = re.compile(r"[0-9]{1,18}")  # as many as the store can hold


def with_siblings(context: Context, places: Mapping[str, JobId], *, to_come: Sequence[str]) -> Context:
    """Names also mean jobs of the same submission that stand before, by their places in it (`After.job`).

    `to_come`: the names of the one that is being read and of those after it.
    """
    find = context.find_job
    if find is None:
        return context

    def find_here_first(ref: str) -> JobId:
        if ref in places:
            return places[ref]
        try:
            return find(ref)
        except NotFound:
            if ref in to_come:
                raise Rejected(_out_of_order(ref, is_itself=ref == to_come[0])) from None
            raise

    return replace(context, find_job=find_here_first)


def _out_of_order(name: str, *, is_itself: bool) -> str:
    if is_itself:
        return f"{name!r} is this job itself, which cannot wait for its own end; name a job that stands before it"
    return f"{name!r} comes later in the same file; a job waits for jobs that stand before it: move {name!r} up"


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
        refuse_unknown(take_mapping(entry, "after"), ("job", "on"), "after")
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
