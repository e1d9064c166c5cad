"""In which folder is the library that jobs import, and nothing else?

A job's own Python may be another than ours, so our site-packages must not end up on its PYTHONPATH: unless the two
packages lie alone in their folder (a checkout), they are copied into one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("kubernetesdlprofile", "swell_sdk")


def library_folder() -> str | None:
    """None: swell-sdk is not installed here."""
    sources = [_source(name) for name in PACKAGES]
    found = [source for source in sources if source is not None]
    if len(found) < len(PACKAGES):
        return None
    if found[0].parent == found[1].parent and _is_alone(found[0].parent):
        return str(found[0].parent)
    return str(_copied(found))


def _source(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _is_alone(folder: Path) -> bool:
    return {path.name for path in folder.iterdir() if path.suffix != ".egg-info"} <= {*PACKAGES, "__pycache__"}


def _copied(sources: list[Path]) -> Path:
    """Named by what is in it, so that a new version is another folder and nobody reads half of one."""
    files = sorted(file for source in sources for file in source.rglob("*.py"))
    content = b"".join(file.read_bytes() for file in files)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swell"
    folder = cache / f"library-{hashlib.sha256(content).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=cache, prefix=".library-"))
    for source in sources:
        shutil.copytree(source, draft / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    draft.chmod(0o755)
    try:
        draft.rename(folder)
    except OSError:  # somebody else was first
        shutil.rmtree(draft)
    return folder
