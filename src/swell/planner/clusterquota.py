"""What helps where a quota of the cluster refuses a job's pods?"""

from __future__ import annotations

import re

QUOTA = re.compile(r"exceeded quota: ([^,\s]+),")  # the API server's own words


def advice(said: object) -> str:
    """Empty: nobody speaks of a quota."""
    found = QUOTA.search(str(said))
    if found is None:
        return ""
    return (
        f"it goes on when the quota {found[1]!r} of its namespace has enough left: see what uses it "
        f"(kubectl describe resourcequota {found[1]} -n NAMESPACE), let it be raised, or ask for less"
    )
