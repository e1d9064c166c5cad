"""Does the server end? Something that can be waited for beside a process or a pipe."""

from __future__ import annotations

import os

from swell.process import ready


class Closing:
    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  #: readable from `set` on

    def set(self) -> None:
        os.eventfd_write(self.descriptor, 1)

    @property
    def is_set(self) -> bool:
        return self.wait(0)

    def wait(self, timeout_s: float) -> bool:
        """True: it ends. False: it has not begun to within so long."""
        return self.descriptor in ready(timeout_s, self.descriptor)
