"""Which documents does a file hold, and which reader understands each?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swell.errors import Rejected
from swell.manifests import aichor, job, jobset, minicluster, mpijob, native, pod, pytorchjob, sbatch, trainjob
from swell.manifests.context import Context
from swell.manifests.dependencies import with_siblings
from swell.manifests.document import Manifest, Translation, as_created
from swell.manifests.fields import did_you_mean, shorten, take_mapping
from swell.manifests.locate import line_of
from swell.manifests.suffix import with_suffix
from swell.manifests.yaml_text import MANIFEST_BYTES_MAX, TextDocument, parse_documents
from swell.model.job import JobSpec
from swell.model.kind import (
    AICHOR,
    JOB,
    JOBSET,
    KINDS,
    MINICLUSTERS,
    MPIJOB,
    NATIVE_JOB,
    ONLY_BY_KUBECTL,
    POD,
    PYTORCHJOB,
    TRAINJOB,
    ManifestKind,
    find_kind,
)
from swell.model.task_environment import several_gpus_notes

__all__ = ["MANIFEST_BYTES_MAX", "READERS", "ManifestFile", "read_document", "read_files", "read_manifests"]

FILES_VALUES_MAX = 100_000  # of one submission: a second of work

Reader = Callable[[dict[str, Any], Context], JobSpec]
READERS: dict[ManifestKind, Reader] = {
    NATIVE_JOB: native.read,
    POD: pod.read,
    JOB: job.read,
    PYTORCHJOB: pytorchjob.read,
    JOBSET: jobset.read,
    MPIJOB: mpijob.read,
    **dict.fromkeys(MINICLUSTERS, minicluster.read),
}
#: kinds that are written out as another one, which is then read, and on Kubernetes created
TRANSLATORS: dict[ManifestKind, Callable[[dict[str, Any], Context], Translation]] = {
    TRAINJOB: trainjob.translate,
    **dict.fromkeys(AICHOR, aichor.translate),
}
ON_CLUSTER = TRANSLATORS | dict.fromkeys(MINICLUSTERS, minicluster.translate)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A text of documents, and what its user calls it."""

    text: str
    name: str = ""  #: empty: there is one, and nobody needs to be told which
    arguments: tuple[str, ...] = ()  #: of a batch script
    options: str = ""  #: of sbatch, which override those in a batch script


@dataclass(frozen=True, slots=True)
class _Placed:
    """A document, and where it stands."""

    document: TextDocument
    file: ManifestFile
    number: int  #: in its file, from 1 on
    total: int  #: of its file


def read_manifests(manifest: str | dict[str, Any], context: Context) -> list[Manifest]:
    """Every job in a file's text, or in one document; a problem in any of them means none is read."""
    if isinstance(manifest, str):
        return read_files([ManifestFile(manifest)], context)
    return [_read_one(with_suffix(manifest, context.suffix) if context.suffix else manifest, context)]


def read_files(files: Sequence[ManifestFile], context: Context) -> list[Manifest]:
    """Every job of several files, in their order; a problem in any of them means none is read.

    A job may wait for any that stands before it, also in another file.
    """
    placed: list[_Placed] = []
    for file in files:
        placed += _documents(file, context)
        if sum(one.document.values for one in placed) > FILES_VALUES_MAX:
            raise Rejected(f"the files stand for more than {FILES_VALUES_MAX} values together; submit fewer at once")
    names = [_given_name(one.document.value) for one in placed]
    found: list[Manifest] = []
    places: dict[str, int] = {}
    for number, one in enumerate(placed, 1):
        own = with_siblings(context, places, to_come=names[number - 1 :])
        found.append(_read_placed(one, own))
        places[found[-1].spec.name] = -number
    _refuse_divided_groups([one.spec for one in found])
    return found


def _given_name(document: Any) -> str:
    """As far as it can be told before the document is read."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _documents(file: ManifestFile, context: Context) -> list[_Placed]:
    """Of objects for a cluster a number is a number, as its API server wants it; elsewhere it stays text."""
    if sbatch.is_script(file.text):
        if context.suffix:
            raise _in_file(Rejected("--suffix is for manifests; write another --job-name in the script"), file)
        script = sbatch.Script(file.text, file.name, file.arguments, file.options)
        return [_Placed(TextDocument(script, {}, values=1), file, 1, 1)]
    if file.arguments or file.options or sbatch.has_options(file.text):
        raise _in_file(Rejected(sbatch.NO_SCRIPT), file)
    try:
        found = parse_documents(file.text, lambda version: context.on_cluster and version != NATIVE_JOB.api_version)
        if not found:
            raise Rejected("the manifest holds no document; start with apiVersion: swell/v1, kind: Job")
        if context.suffix:
            found = [replace(one, value=with_suffix(one.value, context.suffix)) for one in found]
    except Rejected as problem:
        raise _in_file(problem, file) from None
    return [_Placed(document, file, number, len(found)) for number, document in enumerate(found, 1)]


def _in_file(problem: Rejected, file: ManifestFile, said: str = "") -> Rejected:
    return type(problem)(f"{f'{file.name}: ' if file.name else ''}{said}{problem}")


def _refuse_divided_groups(specs: list[JobSpec]) -> None:
    """Pods of one group start together, but every document is a job of its own."""
    first: dict[str, int] = {}
    for number, spec in enumerate(specs, 1):
        if spec.pod_group is not None and first.setdefault(spec.pod_group, number) != number:
            raise Rejected(
                f"documents {first[spec.pod_group]} and {number} are both in the pod group {spec.pod_group!r}, but "
                "each is a job of its own and would start alone; write them as one Job, JobSet or PyTorchJob"
            )


def _read_placed(one: _Placed, context: Context) -> Manifest:
    try:
        found = _read_one(one.document.value, context)
        return replace(found, file=one.file.name, lines=one.document.lines or found.lines)
    except Rejected as problem:
        line = line_of(str(problem), one.document.lines)
        where = "" if one.total == 1 else f"document {one.number} of {one.total}: "
        raise _in_file(problem, one.file, where + ("" if line is None else f"line {line}: ")) from None


def _read_one(document: Any, context: Context) -> Manifest:
    found = _read_any(document, context)
    if context.in_images and found.build is None:
        raise Rejected("--build is for an AIchorManifest with a builder section; leave it out")
    return found


def _read_any(document: Any, context: Context) -> Manifest:
    if isinstance(document, sbatch.Script):
        return sbatch.read(document, context)
    document = take_mapping(document, "the manifest")
    kind = _kind(document)
    translators = ON_CLUSTER if context.on_cluster else TRANSLATORS
    if kind not in translators:
        return Manifest(_read(document, kind, context), as_created(document) if context.on_cluster else document)
    made = translators[kind](document, context)
    spec = _read(made.document, _kind(made.document), context)
    spec = replace(spec, notes=(*made.notes, *spec.notes), tensorboard=made.tensorboard, container=made.container)
    return Manifest(spec, made.document, build=made.build)


def read_document(document: Any, context: Context) -> JobSpec:
    return _read_one(document, context).spec


def _kind(document: dict[str, Any]) -> ManifestKind:
    version, kind = document.get("apiVersion"), document.get("kind")
    found = find_kind(version, kind)
    if found is None:
        _refuse_by_kubectl(version, kind)
        if version is None and kind is None:
            raise Rejected("it has neither apiVersion nor kind, so nobody knows what it is; write both at its top")
        good = [str(one) for one in KINDS]
        asked = f"apiVersion: {shorten(str(version))}, kind: {shorten(str(kind))}"
        raise Rejected(f"nothing here can run {asked!r}{did_you_mean(asked, good)}")
    return found


def _refuse_by_kubectl(version: object, kind: object) -> None:
    """A controller of the cluster makes the pods of these kinds, and would make them again whenever a job ends."""
    if isinstance(kind, str) and kind in ONLY_BY_KUBECTL:
        raise Rejected(
            f"a {kind} ({shorten(str(version))}) is not submitted: it {ONLY_BY_KUBECTL[kind]}. On a cluster write "
            f"schedulerName: swell into its pod template and use kubectl apply; to run its pod once, submit a Job"
        )


def _read(document: dict[str, Any], kind: ManifestKind, context: Context) -> JobSpec:
    spec = READERS[kind](document, context)
    if kind.is_native or not context.on_cluster:  # there the variables of an object's pods are its controller's, too
        spec = replace(spec, notes=(*spec.notes, *several_gpus_notes(spec)))
    return spec if kind.is_native else replace(spec, kind=kind.name)
