"""How does `swell submit --build` make the images that AIchor manifests name?

With podman, buildah or docker, as whoever types it: a Dockerfile runs what it likes, so no server builds it. What is
built is what the server has read, so a manifest that it refuses builds nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swell.errors import Rejected, SwellError

BUILDERS = ("podman", "buildah", "docker")  # the first that is there


def build_images(specs: Sequence[dict[str, Any]]) -> None:
    """In the folder that it is typed in. What is built is said on standard error. `specs`: of a dry run."""
    built: list[dict[str, Any]] = []
    for build in (spec["build"] for spec in specs):
        if not build["is_skipped"] and build not in built:
            _refuse_missing(build["context"])
            _build(build_words(_program(), build))
            built.append(build)


def _program() -> str:
    found = next((one for one in BUILDERS if shutil.which(one)), None)
    if found is None:
        raise Rejected(
            f"--build needs {', '.join(BUILDERS[:-1])} or {BUILDERS[-1]}, and none of them is on this machine; install "
            "one (apt-get install podman), or leave --build out: the command then runs as a process"
        )
    return found


def build_words(program: str, build: dict[str, Any]) -> list[str]:
    """The command that builds the image of a builder section."""
    words = [program, "build", f"--tag={build['image']}", f"--file={build['dockerfile']}"]
    words += [f"--build-arg={name}={value}" for name, value in build["arguments"].items()]
    if build["target"] is not None:
        words.append(f"--target={build['target']}")
    return [*words, _as_folder(build["context"])]


def _as_folder(context: str) -> str:
    """A text that can only be a folder: not an option (`-x`), nor an address (`github.com/x`) to fetch it from."""
    return context if context == "." or context.startswith(("/", "./", "../")) else f"./{context}"


def _refuse_missing(context: str) -> None:
    if not Path(context).is_dir():
        raise Rejected(f"builder.context {context!r} is no folder here; submit it from the folder of its repository")


def _build(words: list[str]) -> None:
    from swell.cli.printing import say

    say(f"building: {' '.join(words)}")
    try:
        done = subprocess.run(words, stdout=sys.stderr, check=False)
    except OSError as problem:
        raise SwellError(f"{words[0]} cannot be started: {problem.strerror}; nothing was submitted") from problem
    if done.returncode != 0:
        raise SwellError(f"{words[0]} could not build the image (exit code {done.returncode}); nothing was submitted")
