"""What is shown to a server elsewhere, and where does it come from?

A token is read when it is first needed, kept in memory for this process, and read again when it was refused.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from swell.errors import Rejected, Unavailable

COMMAND_S_MAX = 60.0  # a cluster's identity provider may be slow; a person at a browser is not waited for
TOKEN_BYTES_MAX = 16 * 1024  # the server takes no longer one
SHOWN_MAX = 500  # of what a command complains of
FILE_VARIABLE, TEXT_VARIABLE = "SWELL_TOKEN_FILE", "SWELL_API_TOKEN"


class Source(Protocol):
    """Its text goes on after "the token"."""

    def read(self) -> str: ...

    @property
    def remedy(self) -> str:
        """What to do when its token is refused."""


@dataclass(frozen=True, slots=True)
class FileSource:
    path: Path

    def __str__(self) -> str:
        return f"in {self.path}"

    @property
    def remedy(self) -> str:
        make = f"kubectl create token NAME -n NAMESPACE > {shlex.quote(str(self.path))}"
        return f"write a new token to it, for example: {make}"

    def read(self) -> str:
        try:
            return _checked(self.path.read_text(), f"the token file {self.path}")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise Rejected(
                f"the token file {self.path} cannot be read: {why}; create it, or name another file"
            ) from error


@dataclass(frozen=True, slots=True)
class CommandSource:
    command: str  #: words as a shell would split them; no shell runs them

    def __str__(self) -> str:
        return f"that `{self.command}` printed"

    @property
    def remedy(self) -> str:
        return "run the command by hand to see whose token it prints, or log in with another: swell login"

    def read(self) -> str:
        doing = f"the token command `{self.command}`"
        try:
            done = subprocess.run(
                _words(self.command),
                stdin=subprocess.DEVNULL,  # ours may be a manifest
                capture_output=True,
                timeout=COMMAND_S_MAX,
                check=False,
            )
        except (OSError, ValueError) as error:
            raise Rejected(f"{doing} cannot be run: {error}; log in with another: swell login") from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{doing} did not end within {COMMAND_S_MAX:g} s; run it by hand to see why") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-SHOWN_MAX:] or "it printed no message"
            raise Unavailable(
                f"{doing} failed with {done.returncode}: {said}; fix that, or log in with another command"
            )
        return _checked(done.stdout.decode(errors="replace"), f"what {doing} printed")


def _words(command: str) -> list[str]:
    found = shlex.split(command)
    if not found:
        raise ValueError("it is empty")
    return found


@dataclass(frozen=True, slots=True)
class VariableSource:
    def __str__(self) -> str:
        return f"in {TEXT_VARIABLE}"

    @property
    def remedy(self) -> str:
        return f"set another token: export {TEXT_VARIABLE}=$(kubectl create token NAME -n NAMESPACE)"

    def read(self) -> str:
        return _checked(os.environ.get(TEXT_VARIABLE, ""), TEXT_VARIABLE)


def source_in(variables: Mapping[str, str]) -> Source | None:
    """A file comes first: what is in it may be renewed while we run."""
    if variables.get(FILE_VARIABLE):
        return FileSource(Path(variables[FILE_VARIABLE]).expanduser().absolute())
    return VariableSource() if variables.get(TEXT_VARIABLE) else None


class Token:
    """One token for all threads of this process."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._text: str | None = None  #: None: not read yet
        self._was_accepted = False
        self._lock = threading.Lock()

    def text(self) -> str:
        with self._lock:
            if self._text is None:
                self._text = self.source.read()
            return self._text

    def accepted(self, shown: str | None) -> None:
        self._was_accepted = self._was_accepted or shown == self._text

    def renew(self, refused: str | None) -> bool:
        """True: there is another one now. A command that has just made one that is refused would only do so again."""
        with self._lock:
            if self._text == refused:
                if isinstance(self.source, CommandSource) and not self._was_accepted:
                    return False
                self._text, self._was_accepted = self.source.read(), False
            return self._text != refused


def expired_at(token: str) -> float | None:
    """When a token of the kind that Kubernetes makes expired; None: it did not, or does not say."""
    try:
        claims = token.split(".")[1]
        moment = float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, LookupError, TypeError, OverflowError):
        return None
    return moment if 0 <= moment < time.time() else None


def _checked(text: str, where: str) -> str:
    found = text.strip()
    if not found:
        raise Rejected(
            f"{where} is empty, but a token is needed; to make one, run: kubectl create token NAME -n NAMESPACE"
        )
    if len(found) > TOKEN_BYTES_MAX or not found.isascii() or not found.isprintable() or " " in found:
        raise Rejected(f"{where} does not contain exactly one token; a token is one word of at most 16 KiB")
    return found
