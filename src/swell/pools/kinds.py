"""Which kinds of pools are there, and which module has each?

A kind is one folder. Its `__init__.py` defines `KIND`, imports no SDK, and is imported only when the kind is named:
`swell pool start --help` imports none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from swell.errors import Rejected
from swell.machine.worker_options import Flag, read_flags
from swell.pools.backend import PoolBackend
from swell.pools.options import PoolOptions

#: name → (module, one line for the listing)
KINDS: dict[str, tuple[str, str]] = {
    "slurm": ("swell.pools.slurm", "Jobs of a Slurm cluster."),
    "aws-batch": ("swell.pools.aws_batch", "Jobs of AWS Batch."),
    "azure-batch": ("swell.pools.azure_batch", "Tasks of Azure Batch."),
    "kubernetes": ("swell.pools.kubernetes", "Pods of a Kubernetes cluster, GKE's among them."),
}


@dataclass(frozen=True, slots=True)
class LegacyCommand:
    """What `cl-worker-manager` of CodaLab calls this kind, and where it differs from ours."""

    name: str  #: slurm-batch, aws-batch, …
    defaults: Mapping[str, str] = field(default_factory=dict)  #: by field, as the text after the flag
    renamed: Mapping[str, str] = field(default_factory=dict)  #: its flag → ours, both without dashes
    switches: frozenset[str] = frozenset()  #: which of its own flags have nothing after them
    named_after: tuple[str, ...] = ()  #: fields that tell two of its managers apart: their pools' names have them
    ignored: Mapping[str, str] = field(default_factory=dict)  #: its flag → why it has no effect here, a sentence
    has_our_disks: bool = False  #: a network disk of the machine that the pool runs on is one of its workers, too
    #: values by field → folders of its workers on a disk that they share, each with the flag that says so
    shared_folders: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class PoolKind:
    name: str
    help: str  #: of `swell pool start KIND`, with an example
    flags: tuple[Flag, ...]  #: its own, beside those of every pool
    read: Callable[[Mapping[str, Any]], Any]  #: values by field → its frozen options; raises `Rejected`
    connect: Callable[[PoolOptions, Any], PoolBackend]  #: imports the SDK; raises `Rejected` with how to install it
    legacy: LegacyCommand

    def backend(self, options: PoolOptions, given: Mapping[str, Any]) -> PoolBackend:
        """`given`: as of `read_pool_options`, with the flags of this kind beside the others."""
        return self.connect(options, self.read(read_flags(self.flags, given)))


def find_kind(name: str) -> PoolKind:
    if name not in KINDS:
        raise Rejected(f"there is no kind of pool {name[:100]!r}; there are: {', '.join(KINDS)}")
    kind: PoolKind = importlib.import_module(KINDS[name][0]).KIND
    return kind
