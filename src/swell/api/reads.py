"""Has an administrator read what is not their own?"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs

from swell.api.caller import Caller
from swell.api.find import ID

OF_A_JOB = ("/api/v1/jobs/", "/get_job/")
OF_EVENTS = ("/api/v1/events", "/api/v1/events/stream")
OF_EVERYBODY = "/metrics"


def others_data(caller: Caller, path: str, query: str, owner_of: Callable[[int], str | None]) -> str | None:
    """What of whom, in words; None: it is their own, or everybody's to see. `owner_of` None: there is no such job."""
    if not caller.is_admin or caller.own is None:
        return None
    given = parse_qs(query)
    for prefix in OF_A_JOB:
        if path.startswith(prefix):
            ref, _, rest = path.removeprefix(prefix).partition("/")
            return _of_job(caller, ref, rest or "show", owner_of)
    if path in OF_EVENTS:
        job = given.get("job", [""])[0]
        return _of_job(caller, job, "events", owner_of) if job else "events of everybody"
    if path == OF_EVERYBODY or given.get("all_users", ["false"])[0] in ("true", "1"):
        return f"{path.rpartition('/')[2]} of everybody"
    user = given.get("user", [caller.user])[0]
    return None if user == caller.user else f"{path.rpartition('/')[2]} of {user[:100]!r}"


def _of_job(caller: Caller, ref: str, what: str, owner_of: Callable[[int], str | None]) -> str | None:
    """A name means one's own."""
    owner = owner_of(int(ref)) if ID.fullmatch(ref) else None
    return None if owner in (None, caller.user) else f"{what} of job {ref} of {owner!r}"
