"""Documents people write ⇄ `JobSpec`. Pure: text and a context in, values or a `Rejected` out.

Public: `read_manifests` (YAML text), `read_document` (one parsed document), `Context`. A manifest is hostile
input: its size, depth and aliases are bounded, and a field nobody knows is an error, never swallowed.
One file per kind; a new kind is a new entry in `READERS`.
"""

from swell.manifests.context import Context
from swell.manifests.read import MANIFEST_BYTES_MAX, read_document, read_manifests

__all__ = ["MANIFEST_BYTES_MAX", "Context", "read_document", "read_manifests"]
