"""Which server elsewhere did this user log in to?

A file of the user's, mode 0600, that says where the server is and where its token comes from. The token itself is not
in it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell.errors import Rejected
from swell.machine.state_folder import write_private

if TYPE_CHECKING:
    from swell.client.remote import Remote


@dataclass(frozen=True, slots=True)
class Login:
    """At most one of `token_file` and `token_command`; neither: SWELL_TOKEN_FILE or SWELL_API_TOKEN has the token."""

    url: str
    token_file: str | None = None
    token_command: str | None = None
    ca: str | None = None  #: None: those whom this machine trusts
    insecure_http: bool = False
    fingerprint: str | None = None  #: SHA-256 of the server's certificate; None: somebody vouches for it

    def remote(self) -> Remote:
        from swell.client.remote import Remote
        from swell.client.tokens import CommandSource, FileSource, Token, source_in
        from swell.machine.certificate import read_fingerprint
        from swell.machine.server_address import read_url

        url = read_url(self.url, insecure_http=self.insecure_http)
        source = source_in(os.environ)
        if self.token_file is not None:
            source = FileSource(Path(self.token_file))
        elif self.token_command is not None:
            source = CommandSource(self.token_command)
        if source is None:
            raise Rejected(
                f"{url} needs a token, and none is configured; set SWELL_TOKEN_FILE or SWELL_API_TOKEN, or log "
                "in with one: "
                f"swell login {url} --token-file FILE, or --token-command 'kubectl create token NAME -n NAMESPACE'"
            )
        pin = None if self.fingerprint is None else read_fingerprint(self.fingerprint)
        return Remote(url, Token(source), None if self.ca is None else Path(self.ca), pin)


def login_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "swell" / "server.json"


def read_login() -> Login | None:
    """None: nobody logged in."""
    path = login_file()
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _broken(path, str(error)) from error
    if mode & 0o022:
        raise _broken(path, "other users can write to it, and it can name a command to run")
    return _parse(path, found)


def _parse(path: Path, found: object) -> Login:
    if not isinstance(found, dict) or not isinstance(found.get("url"), str):
        raise _broken(path, "it names no server")
    known = Login.__slots__
    if not set(found) <= set(known):
        raise _broken(path, f"it has a field other than {', '.join(known)}")
    texts = {name: text for name, text in found.items() if name != "insecure_http"}
    if not all(isinstance(text, str) for text in texts.values()):
        raise _broken(path, "a field in it is not text")
    return Login(**texts, insecure_http=found.get("insecure_http") is True)


def _broken(path: Path, why: str) -> Rejected:
    return Rejected(f"the login in {path} cannot be used: {why}; `swell login` rewrites it, `swell logout` removes it")


def write_login(login: Login) -> None:
    path = login_file()
    said: dict[str, Any] = {name: getattr(login, name) for name in Login.__slots__}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps({name: value for name, value in said.items() if value}, indent=1) + "\n")
    except OSError as error:
        raise Rejected(
            f"the login cannot be stored in {path}: {error.strerror}; fix that, or set SWELL_SERVER"
        ) from error


def forget_login() -> bool:
    """False: there was none."""
    try:
        login_file().unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
