"""A stand-in, see README.md: what every operation of fms-hf-tuning derives from."""

from __future__ import annotations

import inspect
from typing import Any


class Operation:
    def __init__(self, name: str, **_: Any) -> None:
        self.name = name
        methods = inspect.getmembers(self, predicate=inspect.ismethod)
        self.actions = {word: method for word, method in methods if word.startswith("should_")}

    def act(self, action: str, **kwargs: Any) -> None:
        self.actions[action](**kwargs)
