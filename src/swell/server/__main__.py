"""`python -m swell.server --state DIR`: how does the server's process begin and end?"""

from __future__ import annotations

import gc
import logging
import os
import sys

GARBAGE = (50_000, 20, 50)  # we make hardly any cycles, and to look for them among a cluster's pods takes long


def run() -> None:
    gc.set_threshold(*GARBAGE)  # before the imports: to look for garbage among them takes a fifth of their time
    from swell.server.main import main

    code = main()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # all is closed; to give back the memory of a large cluster piece by piece takes half a minute


if __name__ == "__main__":
    run()
