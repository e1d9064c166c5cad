"""Documents people write ⇄ `JobSpec`. Pure: text and a context in, values or a `Rejected` out.

Public: `read_files` (texts → jobs with their documents), `read_manifests` (one text or one document), `read_document`
(one document → its job), `Context`; for a cluster `object_ref` (where the object of a document is), `native_objects`
and `object_name` (what a job in our own notation is there). A manifest is hostile input: its size, depth and aliases
are bounded, and a field nobody knows is an error, never swallowed; where Kubernetes runs it, its API server says so.
One file per kind; a new kind is an entry in `model/kind.py` and its reader in `READERS`.
"""

from swell.manifests.context import Commit, Context
from swell.manifests.document import Manifest, ObjectRef, is_in_cluster, is_native, object_ref
from swell.manifests.native_objects import native_objects, object_name
from swell.manifests.read import MANIFEST_BYTES_MAX, ManifestFile, read_document, read_files, read_manifests

__all__ = [
    "MANIFEST_BYTES_MAX",
    "Commit",
    "Context",
    "Manifest",
    "ManifestFile",
    "ObjectRef",
    "is_in_cluster",
    "is_native",
    "native_objects",
    "object_name",
    "object_ref",
    "read_document",
    "read_files",
    "read_manifests",
]
