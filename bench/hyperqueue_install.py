"""Where is HyperQueue? In a virtual environment of its own, outside the tree, made on first use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.rows import progress

VERSION = "0.27.0"


def hyperqueue_python() -> Path:
    """The interpreter that can import it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swell-bench"
    home = cache / f"hyperqueue-{VERSION}"
    if not (home / "complete").exists():
        progress(f"installing hyperqueue {VERSION} into {home}")
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin/python", "-m", "pip", "install", "-q", f"hyperqueue=={VERSION}"], check=True)
        (home / "complete").touch()
    return home / "bin/python"
