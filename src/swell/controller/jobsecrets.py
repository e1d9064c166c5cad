"""With which secret is a job's token made, and which ones are still believed?

There is one. When it is replaced, attempts that were told a token of the one before go on with it: that one counts for
them, and for nobody else, until the last of them has ended. Then it is forgotten.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from swell.controller.reporting import read_token
from swell.machine.state_folder import SECRET_BYTES, StateFolder, write_private
from swell.model.job import AttemptId


@dataclass(frozen=True, slots=True)
class Retired:
    secret: str
    retired_at: float  #: attempts that were made until then know it


class JobSecrets:
    """Used by the loop and by requests; what they see is replaced whole."""

    def __init__(
        self,
        current: str,
        retired: tuple[Retired, ...] = (),
        *,
        began: Callable[[AttemptId], float | None] = lambda _: None,
        keep: Callable[[str, tuple[Retired, ...]], None] = lambda *_: None,
    ) -> None:
        """`began`: when an attempt was made, None: it has ended, or never was. `keep`: on disk, before it counts."""
        self._known = current, retired  #: the oldest first
        self._lock = threading.Lock()  #: for who replaces it
        self._began = began
        self._keep = keep

    def of(self, made_at: float) -> str:
        """For an attempt that was made then: the same however often one asks, also after a restart."""
        current, retired = self._known
        return next((one.secret for one in retired if made_at <= one.retired_at), current)

    def read(self, token: str, now: float) -> AttemptId | None:
        """Whose it is; None: forged, broken, expired, or of a secret that is not good for its attempt any more."""
        current, retired = self._known
        found = read_token(current, token, now)
        if found is not None:
            return found
        for one in retired:
            found = read_token(one.secret, token, now)
            if found is not None:
                made_at = self._began(found)
                return found if made_at is not None and made_at <= one.retired_at else None
        return None

    def rotate(self, now: float) -> None:
        with self._lock:
            current, retired = self._known
            self._replace(secrets.token_urlsafe(SECRET_BYTES), (*retired, Retired(current, now)))

    def forget_unused(self, oldest: Callable[[], float | None]) -> None:
        """`oldest`: when the oldest attempt was made that has not ended; None: all have."""
        with self._lock:
            current, retired = self._known
            made_at = oldest() if retired else None
            needed = tuple(one for one in retired if made_at is not None and made_at <= one.retired_at)
            if needed != retired:
                self._replace(current, needed)

    def _replace(self, current: str, retired: tuple[Retired, ...]) -> None:
        self._keep(current, retired)
        self._known = current, retired


def open_job_secrets(state: StateFolder, began: Callable[[AttemptId], float | None]) -> JobSecrets:
    """Those in the state folder."""
    current = state.secret(state.job_secret)
    found = _read_retired(state.retired_job_secrets)

    def keep(secret: str, retired: tuple[Retired, ...]) -> None:
        """The old ones first: a crash in between leaves one that is both, and that is harmless."""
        write_private(state.retired_job_secrets, json.dumps([asdict(one) for one in retired]))
        write_private(state.job_secret, secret + "\n")

    return JobSecrets(current, tuple(one for one in found if one.secret != current), began=began, keep=keep)


def _read_retired(path: Path) -> tuple[Retired, ...]:
    return tuple(Retired(**one) for one in json.loads(path.read_text())) if path.exists() else ()
