"""Can these commands run at the same time? Each line of theirs is told with its name before it.

python tools/side_by_side.py slow="pytest -q -m slow" cluster="pytest -q -m cluster"

Ends when all have ended, with the first code that is not 0.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def main(words: list[str]) -> int:
    with ThreadPoolExecutor(len(words)) as pool:
        codes = list(pool.map(run, words))
    return next((code for code in codes if code), 0)


def run(word: str) -> int:
    name, _, command = word.partition("=")
    began = time.monotonic()
    process = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    for line in process.stdout:
        say(name, line)
    code, took_s = process.wait(), round(time.monotonic() - began)
    say(name, f"ended with {code} after {took_s // 60} min {took_s % 60} s\n".encode())
    return code


def say(name: str, line: bytes) -> None:
    sys.stdout.buffer.write(f"{name} | ".encode() + line)  # one write: lines stay whole
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
