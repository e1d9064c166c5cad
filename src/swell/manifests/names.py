"""What may a job be called?"""

from __future__ import annotations

import re
import reprlib

from swell.errors import Rejected

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def read_name(value: object) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise Rejected(
            f"name {reprlib.repr(value)} cannot be used: a name is 1 to 63 letters, digits, '.', '_' or '-', "
            "and begins with a letter or digit"
        )
    if value.isdigit():
        raise Rejected(f"name {value!r} is a number and would be taken for a job's id; add a letter")
    return value


def default_name(command: tuple[str, ...]) -> str:
    """`python train.py` → train; `/bin/true` → true; a script after an interpreter names the job."""
    words = [word.rstrip("/").rpartition("/")[2] for word in command if not word.startswith("-")]
    script = next((word for word in words[1:] if word.endswith((".py", ".sh"))), None)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", script[: -len(".py")] if script else words[0] if words else "")
    name = name.strip(".-_")[:63]
    return name if name and not name.isdigit() else "job"
