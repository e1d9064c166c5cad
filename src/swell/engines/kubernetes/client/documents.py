"""What does a text of the API server say, however deep somebody has nested it?

The API server takes JSON that is ten thousand levels deep, and hands it to everybody: a user may write such a thing
into `metadata.managedFields` of a pod. Our parser goes two hundred levels deep. What lies below is of no use to us, so
it is left out; without that, one object would make a whole page of a list, or a line of a watch, unreadable.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

Document = dict[str, Any]  #: an object of Kubernetes, as JSON has it
DEPTH_MAX = 100  # what we read of an object lies within twenty; the parser gives up at two hundred
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


def parse_json(text: bytes) -> Any:
    """Raises ValueError where it is no JSON."""
    try:
        return from_json(text)  # half the time of json.loads, and there are many of these
    except ValueError:
        shallow = without_depths(text)
        if shallow == text:
            raise
        return from_json(shallow)


def without_depths(text: bytes) -> bytes:
    """The same with `null` for every table or list that lies deeper than `DEPTH_MAX`."""
    pieces, depth, begin = [], 0, 0
    for token in TOKEN.finditer(text):
        sign = text[token.start()]
        if sign in b"[{":
            depth += 1
            if depth == DEPTH_MAX + 1:
                pieces.append(text[begin : token.start()])
        elif sign in b"]}":
            depth -= 1
            if depth == DEPTH_MAX:
                pieces.append(b"null")
                begin = token.end()
    return b"".join([*pieces, text[begin:]]) if pieces and depth <= DEPTH_MAX else text
