"""The errors that leave a part of Swell on purpose.

    SwellError            a message for a person: what was asked, what is true, what to do
    ├── Rejected          will never work as asked: tell the user          (HTTP 422, exit code 2)
    │   ├── NotFound      nothing of that name                             (HTTP 404)
    │   ├── Conflict      true now, may change: ambiguous, still running   (HTTP 409)
    │   ├── Denied        who asks may not                                 (HTTP 401, 403)
    │   ├── TooMany       who asks has as much as they may have            (HTTP 429)
    │   └── TooLarge      over a stated limit                              (HTTP 413)
    └── Unavailable       try again later: disk full, server starting      (HTTP 503, exit code 1)

Anything else is a bug and is left to surface.
"""

from __future__ import annotations

#: ends the refusal of a job that no node could run, by the server and by the command line
TO_QUEUE_IT = "; to queue it until a node is large enough, add --wait-for-nodes"


class SwellError(Exception):
    """Its text is complete: no caller needs to add what to do."""


class Rejected(SwellError):
    pass


class NotFound(Rejected):
    pass


class Conflict(Rejected):
    pass


class Denied(Rejected):
    pass


class TooMany(Rejected):
    pass


class TooLarge(Rejected):
    pass


class Unavailable(SwellError):
    pass
