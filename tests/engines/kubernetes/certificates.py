"""Certificates for tests, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


def self_signed(folder: Path, name: str, *, whom: str = "IP:127.0.0.1") -> Pair:
    """Its own authority, good for a day."""
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "1", "-subj", f"/CN={name}", "-addext", f"subjectAltName={whom}"]
    words += ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    subprocess.run(words, check=True, capture_output=True)
    return pair
