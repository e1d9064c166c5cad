"""Which files does a command send, and how far is it?"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell.model.quantity import number_of

if TYPE_CHECKING:
    from swell.client import Client
    from swell.client.transfer import LocalInput

SHOWN_S = 0.2  # between two updates of a terminal's line
QUIET_S = 1.0  # what takes no longer needs no line
SAID_S = 30.0  # between two lines where there is no terminal
MB = 1e6


def send_files(
    client: Client,
    workdir: str | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    *,
    upload: bool,
    has_image: bool,
) -> dict[str, Any]:
    """What the job's document says of its files.

    A job with inputs or outputs runs in a folder of its own. The working directory is sent whenever it has one: the
    program is there, and would be missing from a folder with nothing but the inputs.
    """
    from swell.cli.printing import say
    from swell.errors import Rejected

    urls, local = _split(inputs)
    is_relative = workdir is not None and not workdir.startswith("/")
    has_own_folder = bool(upload or inputs or outputs)
    if has_own_folder and has_image:
        raise Rejected(
            "--upload, --input and --output do not work with --image: such a job has the files of its image; leave out "
            "one or the other, or use --mount"
        )
    if not has_own_folder and not (client.is_elsewhere and is_relative and not has_image):
        return {"inputs": urls}
    id_ = send(client, Path(workdir or "."), local)
    if not outputs:
        say("the job runs in a copy of that folder, and no file that it writes there is kept; name files with --output")
    return {"inputs": urls, "uploaded": id_, "workdir": None}


def _split(inputs: tuple[str, ...]) -> tuple[list[dict[str, str]], list[LocalInput]]:
    """Of an address with a query an '=' belongs to the query."""
    from swell.client.transfer import LocalInput
    from swell.errors import Rejected

    urls, local = [], []
    for text in inputs:
        if text.startswith(("http://", "https://")):
            url, _, to = text.partition("=") if "?" not in text else (text, "", "")
            urls.append({"url": url, "to": to} if to else {"url": url})
            continue
        source, _, to = text.partition("=")
        to = to or Path(source).name
        if not source or not to or to.startswith("/") or ".." in Path(to).parts:
            raise Rejected(f"--input {text!r}: write PATH=TO, where TO is a path below the job's folder")
        local.append(LocalInput(Path(source).expanduser(), to.strip("/")))
    targets = [one["to"] for one in urls if "to" in one] + [one.to for one in local]
    if twice := next((to for to in targets if targets.count(to) > 1), None):
        raise Rejected(f"two --input options write to {twice!r}; give each a path of its own: PATH=TO")
    return urls, local


def send(client: Client, folder: Path, inputs: list[LocalInput] | None = None) -> str:
    """Its id. What it takes is shown while it takes long, and said when it is over."""
    from swell.cli.printing import say
    from swell.client.transfer import send_folder

    shown = SendProgress()
    try:
        sent = send_folder(client.connection, folder, inputs or [], shown)
    finally:
        shown.close()
    say(
        f"{number_of(sent.files, 'file')} of {sent.size / MB:.1f} MB from {folder.resolve()}; "
        f"{sent.sent / MB:.1f} MB of them were new to the server"
    )
    return sent.id


class SendProgress:
    """One line on a terminal that is written anew; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._has_line = False

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._began < QUIET_S or now - self._shown < (SHOWN_S if self._is_terminal else SAID_S):
            return
        self._shown, self._has_line = now, True
        text = f"swell: {what} files: {done / MB:.1f} of {total / MB:.1f} MB ({100 * done // max(1, total)} %)"
        print(f"\r{text}\033[K" if self._is_terminal else text, end="" if self._is_terminal else "\n", file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        if self._has_line and self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr)
            sys.stderr.flush()
