"""A stand-in, see README.md."""

from __future__ import annotations

from typing import Any


class Callback:
    model: Any
    params: Any
