"""Which documents does a file hold, and which reader understands each?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import yaml

from swell.errors import Rejected, TooLarge
from swell.manifests import job, jobset, native, pod, pytorchjob
from swell.manifests.context import Context
from swell.manifests.document import NATIVE, Manifest, as_created, is_native
from swell.manifests.fields import describe, did_you_mean, shorten, take_mapping
from swell.model.job import JobSpec

MANIFEST_BYTES_MAX = 1024 * 1024  # Kubernetes stops at 1.5 MB; a job file is a page of text
VALUES_MAX = 20_000  # building that many takes a fifth of a second, in which the server answers nobody else
DEPTH_MAX = 50

Reader = Callable[[dict[str, Any], Context], JobSpec]
READERS: dict[tuple[str, str], Reader] = {
    (NATIVE, "Job"): native.read,
    ("v1", "Pod"): pod.read,
    ("batch/v1", "Job"): job.read,
    ("kubeflow.org/v1", "PyTorchJob"): pytorchjob.read,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): jobset.read,
}


def read_manifests(manifest: str | dict[str, Any], context: Context) -> list[Manifest]:
    """Every job in a file's text, or in one document; a problem in any of them means none is read."""
    if not isinstance(manifest, str):
        return [_read_one(manifest, context)]
    documents = [document for document in _documents(manifest, context) if document is not None]
    if not documents:
        raise Rejected("the manifest holds no document; start with apiVersion: swell/v1, kind: Job")
    found = [_read_numbered(document, context, n, len(documents)) for n, document in enumerate(documents, 1)]
    _refuse_divided_groups([one.spec for one in found])
    return found


def _documents(text: str, context: Context) -> list[Any]:
    """Of objects for a cluster a number is a number, as its API server wants it; elsewhere it stays text."""
    _refuse_size(text)
    plain = _parse(text, _Loader)
    if not context.on_cluster:
        return plain
    pairs = zip(plain, _parse(text, _NumberLoader), strict=True)
    return [one if isinstance(one, dict) and is_native(one) else typed for one, typed in pairs]


def _refuse_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Rejected("the manifest is not valid Unicode text; save it as UTF-8") from None
    if size > MANIFEST_BYTES_MAX:
        raise TooLarge(f"the manifest has {size} bytes; at most {MANIFEST_BYTES_MAX} are read: split it")


def _refuse_divided_groups(specs: list[JobSpec]) -> None:
    """Pods of one group start together, but every document is a job of its own."""
    first: dict[str, int] = {}
    for number, spec in enumerate(specs, 1):
        if spec.pod_group is not None and first.setdefault(spec.pod_group, number) != number:
            raise Rejected(
                f"documents {first[spec.pod_group]} and {number} are both in the pod group {spec.pod_group!r}, but "
                "each is a job of its own and would start alone; write them as one Job, JobSet or PyTorchJob"
            )


def _read_numbered(document: Any, context: Context, number: int, total: int) -> Manifest:
    try:
        return _read_one(document, context)
    except Rejected as problem:
        if total == 1:
            raise
        raise type(problem)(f"document {number} of {total}: {problem}") from None


def _read_one(document: Any, context: Context) -> Manifest:
    spec = read_document(document, context)
    return Manifest(spec, as_created(document) if context.on_cluster else document)


def read_document(document: Any, context: Context) -> JobSpec:
    document = take_mapping(document, "the manifest")
    version, kind = document.get("apiVersion"), document.get("kind")
    reader = READERS.get((str(version), str(kind)))
    if reader is None:
        good = [f"apiVersion: {version}, kind: {kind}" for version, kind in READERS]
        asked = f"apiVersion: {shorten(str(version))}, kind: {shorten(str(kind))}"
        raise Rejected(f"nothing here can run {asked!r}{did_you_mean(asked, good)}")
    spec = reader(document, context)
    return spec if is_native(document) else replace(spec, kind=str(kind))


_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Text, true/false, null, lists and mappings; nothing else, and no key twice.

    A number stays the text it was written as: `[python, --version=, 3.10]` must not become 3.1, nor 010 become 8,
    and `no` is a word. Whoever wants a number parses the text.
    """

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {}
    yaml_constructors: ClassVar[dict[Any, Any]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[object] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = key_node.value if isinstance(key_node.value, str) else describe(key_node.value)
            if key in seen and key != "<<":
                raise Rejected(f"line {key_node.start_mark.line + 1}: the field {key!r} is given twice; keep one")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_bool(self, node: Any) -> bool | str:
        """A word is only a truth value where YAML 1.2 says so; an explicit tag makes nothing else one."""
        text: str = self.construct_scalar(node)
        return text.lower() == "true" if BOOL.fullmatch(text) else text

    def refuse(self, node: Any) -> Any:
        line = node.start_mark.line + 1
        raise Rejected(f"line {line}: the YAML tag {node.tag!r} is not understood here; write plain values without it")


TAG = "tag:yaml.org,2002:"
BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_Loader.add_implicit_resolver(TAG + "bool", BOOL, list("tTfF"))
_Loader.add_implicit_resolver(TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(TAG + "merge", re.compile(r"^<<$"), ["<"])
for _tag, _construct in {
    "str": _Loader.construct_scalar,
    "int": _Loader.construct_scalar,
    "float": _Loader.construct_scalar,
    "bool": _Loader.construct_bool,
    "null": _Loader.construct_yaml_null,
    "seq": _Loader.construct_yaml_seq,
    "map": _Loader.construct_yaml_map,
}.items():
    _Loader.add_constructor(TAG + _tag, _construct)
_Loader.add_constructor(None, _Loader.refuse)


class _NumberLoader(_Loader):
    """The same, and plain numbers are numbers as kubectl reads them: `defaultMode: 0644` is octal. What is too large
    for one stays text; the API server says what it thinks of it."""

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = dict(_Loader.yaml_implicit_resolvers)
    yaml_constructors: ClassVar[dict[Any, Any]] = dict(_Loader.yaml_constructors)

    def construct_number(self, node: Any) -> int | float | str:
        text: str = self.construct_scalar(node)
        if INT.fullmatch(text):
            return int(text)
        if OCTAL.fullmatch(text):
            return int(text.replace("o", ""), 8)
        if HEX.fullmatch(text):
            return int(text, 16)
        number = float(text) if FLOAT.fullmatch(text) else math.inf
        if not math.isfinite(number):
            return text
        return int(number) if number.is_integer() and abs(number) <= EXACT_MAX else number


EXACT_MAX = 2**53  # beyond it a float is no whole number's exact value
INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
OCTAL = re.compile(r"[-+]?0o?[0-7]{1,20}")
HEX = re.compile(r"[-+]?0x[0-9a-fA-F]{1,16}")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,20}|[0-9]{1,20}(?:\.[0-9]{0,20})?)(?:[eE][-+]?[0-9]{1,3})?")
_NumberLoader.add_implicit_resolver(
    TAG + "int",
    re.compile("|".join(f"(?:{one.pattern})$" for one in (INT, OCTAL, HEX, FLOAT))),
    list("-+.0123456789"),
)
for _tag in ("int", "float"):
    _NumberLoader.add_constructor(TAG + _tag, _NumberLoader.construct_number)


def _parse(text: str, loader: Any) -> list[Any]:
    try:
        _refuse_bombs(text)
        return list(yaml.load_all(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise Rejected(f"the manifest is not valid YAML: {where}{problem}") from None


def _refuse_circle(alias: Any, open_collections: list[tuple[str | None, int]]) -> None:
    if any(anchor == alias.anchor for anchor, _ in open_collections):
        line = alias.start_mark.line + 1
        raise Rejected(f"line {line}: the YAML alias *{alias.anchor} stands for something it is part of; write it out")


def _refuse_bombs(text: str) -> None:
    """A first pass over the events, before anything is built.

    Aliases make a page of text mean a billion values ("billion laughs"), by nesting or by merging, so what is
    counted is what the text means when every alias is written out.
    """
    sizes: dict[str | None, int] = {}  #: anchor (None: a name nobody asks for) → how many values it stands for
    open_collections: list[tuple[str | None, int]] = []  #: anchor, and how many values came before it
    count = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.DocumentStartEvent):
            sizes.clear()
        elif isinstance(event, yaml.AliasEvent):
            _refuse_circle(event, open_collections)
            count += sizes.get(event.anchor, 1)  # one that nothing stands for is found by the next pass
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            sizes.pop(event.anchor, None)
            open_collections.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_collections.pop()
            sizes[anchor] = count - before
        if count > VALUES_MAX:
            raise Rejected(
                f"the manifest stands for more than {VALUES_MAX} values when its YAML aliases are written out; "
                "a job needs a few dozen: leave aliases out, or split it"
            )
        if len(open_collections) > DEPTH_MAX:
            raise Rejected(f"the manifest is nested deeper than {DEPTH_MAX} levels; a job needs five")
