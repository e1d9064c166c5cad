"""Which frameworks do soak tests need, and where are they installed?

Each in an environment of its own below .venv, which it goes and comes with, made once: they are gigabytes, and no two
of them agree about the rest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDER = ("3.10", "3.9", "3.8")  # the newest Python of which there is a torch for Lightning 1.5


@dataclass(frozen=True)
class Environment:
    name: str
    packages: tuple[str, ...]
    pythons: tuple[str, ...] = ()  #: versions that it may have; empty: ours

    @property
    def folder(self) -> Path:
        return ROOT / ".venv" / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"


TENSORFLOW = Environment("tensorflow", ("tensorflow-cpu", "tf-keras"))
PYTORCH = Environment("frameworks", ("torch", "lightning", "transformers", "accelerate"))
LIGHTNING_15 = Environment(
    "lightning15",
    ("torch==1.12.1", "pytorch-lightning==1.5.10", "torchmetrics<0.12", "numpy<2", "setuptools<60", "six"),
    OLDER,
)

FMS = Environment("fms", ("fms-hf-tuning==3.2.2",), ("3.12", "3.11", "3.10"))


def make_environment(wanted: Environment) -> str:
    """What is missing, or nothing."""
    mark = wanted.folder / ".made"
    listed = " ".join(wanted.packages)
    if mark.exists() and mark.read_text() == listed:
        return ""
    base = find_python(wanted.pythons)
    if base is None:
        return f"{wanted.name} needs Python {' or '.join(wanted.pythons)}, and none is on PATH or in ~/.pyenv"
    print(f"making an environment with {listed} (first time: some minutes) ...", flush=True)
    shutil.rmtree(wanted.folder, ignore_errors=True)
    # Not from where we are: a tier before this one may have left us in a folder that is gone.
    subprocess.run([base, "-m", "venv", str(wanted.folder)], cwd=ROOT, check=True)
    pip = [str(wanted.python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*pip, *wanted.packages], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        return f"{wanted.name} needs {listed}, which pip could not install: {done.stderr.strip()[-300:]}"
    mark.write_text(listed)
    return ""


def find_python(versions: tuple[str, ...]) -> str | None:
    """The first of these that starts."""
    if not versions:
        return sys.executable
    own = [str(path) for one in versions for path in sorted(Path.home().glob(f".pyenv/versions/{one}.*/bin/python3"))]
    for name in (*(f"python{one}" for one in versions), *own):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
            return found
    return None
