"""When was each part of a log written?

The index beside a log is a sequence of (offset, time): what stands from this offset on was written at about that
time. The worker appends to it, whoever serves logs reads it.
"""

from __future__ import annotations

import struct

ENTRY = struct.Struct("<qd")


def pack_entry(offset: int, at: float) -> bytes:
    return ENTRY.pack(offset, at)


def offset_at(data: bytes, moment: float) -> int | None:
    """Where what was written at or after a moment begins; None: nothing was."""
    whole = len(data) // ENTRY.size * ENTRY.size
    return next((offset for offset, at in ENTRY.iter_unpack(data[:whole]) if at >= moment), None)
