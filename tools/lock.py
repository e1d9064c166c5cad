"""Which exact versions does Swell install? Writes requirements.lock, with hashes and without any host name.

`make lock` takes the newest versions that pyproject.toml allows; docs/decisions/0001 says why this format.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLVER = "uv==0.13.7"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/pip", "install", "--quiet", RESOLVER], check=True)
        compile_ = [f"{folder}/bin/uv", "pip", "compile", "--quiet", "--generate-hashes", "--universal"]
        extras = ["--extra", "dev", "--extra", "aws", "--extra", "azure"]  # the tests use the clouds' own libraries
        options = ["--python-version", "3.11", *extras, "--no-emit-index-url", "--upgrade"]
        target = ["--custom-compile-command", "make lock", "-o", "requirements.lock", "pyproject.toml"]
        return subprocess.run([*compile_, *options, *target], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
