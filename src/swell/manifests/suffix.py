"""What is a manifest under another name, and does anything in it still go by the old one?

The pods of a JobSet, PyTorchJob or MPIJob have addresses that begin with its name (`train-workers-0-0.train`), and a
manifest may have them written out. Under another name these would be the addresses of another job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from swell.errors import Rejected

WORD = re.compile(r"[A-Za-z0-9.-]+")
NUMBERED = re.compile(r".*-[0-9]+")


def with_suffix(document: Any, suffix: str) -> Any:
    """The same with the suffix on its name; refused where something in it is an address under the old name."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str):
        raise Rejected(f"it has no metadata.name to which --suffix {suffix} could be added; write one")
    for path, text in _texts({key: value for key, value in document.items() if key != "metadata"}, ""):
        for word in WORD.findall(text):
            if _is_address(word, name):
                raise Rejected(
                    f"{path} contains {word!r}, an address of {name!r}: under the name {name + suffix!r} it would be "
                    "that of another job; change both in the file and leave out --suffix"
                )
        if ".after[" in f".{path}":
            raise Rejected(f"{path} is the name of a job, to which --suffix would not be added; leave --suffix out")
    return {**document, "metadata": {**metadata, "name": name + suffix}}


def _is_address(word: str, name: str) -> bool:
    """Of a pod, or of the object's Service: `train-workers-0-0.train`, `train-master-0`, `worker.train.ml.svc`."""
    host, *domain = word.strip(".").split(".")
    is_pod = host.startswith(f"{name}-") and NUMBERED.fullmatch(host) is not None
    return is_pod or (bool(domain) and domain[0] == name) or (host == name and "svc" in domain)


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in it, and where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _texts(one, f"{path}[{number}]")
