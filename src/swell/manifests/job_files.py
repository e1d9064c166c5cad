"""Which files does a job bring with it, and which does it send back?"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected
from swell.files.ignore import parse_rules
from swell.files.listing import DIGEST, NAME_BYTES_MAX
from swell.manifests.context import Context
from swell.manifests.fields import describe, inside, refuse_unknown, shorten, system_bytes, take_list, take_mapping
from swell.model.job_files import JobFiles, UrlInput

FIELDS = ("uploaded", "inputs", "outputs")
INPUT = ("url", "to", "sha256")
INPUTS_MAX = 100
OUTPUTS_MAX = 100
URL_MAX = 2000


def read_files(spec: dict[str, Any], context: Context) -> JobFiles | None:
    """None: its tasks run in a folder that is there already."""
    folder = context.uploaded if spec.get("uploaded") is None else spec["uploaded"]
    if folder and (not isinstance(folder, str) or not DIGEST.fullmatch(folder)):
        raise Rejected(
            "uploaded must be the id of a folder that was sent, 64 digits from 0 to f; `swell run --upload` and `swell "
            "submit --upload DIR` send one and fill it in"
        )
    inputs = _read_several(spec, "inputs", INPUTS_MAX, _read_input)
    outputs = _read_several(spec, "outputs", OUTPUTS_MAX, _read_output)
    if not (folder or inputs or outputs):
        return None
    if spec.get("image") is not None:
        raise Rejected(
            "a job with an image has the image's files; leave out uploaded, inputs and outputs, or the image"
        )
    return JobFiles(folder or "", inputs, outputs)


def notes(files: JobFiles | None) -> tuple[str, ...]:
    """What somebody may not expect."""
    if files is None or files.folder:
        return ()
    told = (
        "it has inputs or outputs, so it runs in a folder of its own, in which nothing but the inputs is; to send a "
        "folder with its program, submit it with --upload DIR"
    )
    return (told,)


def read_inner_folder(value: object) -> str:
    """Where in its folder a job begins."""
    if value is None:
        return "."
    path = value if isinstance(value, str) else ""
    if not path or path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise Rejected(
            f"workdir {shorten(str(value))!r}: with uploaded, inputs or outputs it is a path below the job's own "
            "folder, as in src; leave it out for the folder itself"
        )
    system_bytes(path, "workdir")
    return path


def _read_several(spec: dict[str, Any], field: str, most: int, read: Any) -> tuple[Any, ...]:
    if spec.get(field) is None:
        return ()
    found = take_list(spec[field], field)
    if len(found) > most:
        raise Rejected(f"{field} has {len(found)} entries; at most {most} are taken")
    with inside(f"{field}: "):
        return tuple(read(one) for one in found)


def _read_output(value: object) -> str:
    if not isinstance(value, str) or not parse_rules(value) or "\n" in value or value.startswith("!"):
        raise Rejected(f"write a pattern as in .gitignore, such as results/ or *.pt, instead of {describe(value)}")
    if ".." in PurePosixPath(value).parts:
        raise Rejected(
            f"{shorten(value)!r} leads out of the job's own folder; write a path inside it, such as results/"
        )
    system_bytes(value, "outputs")
    return value


def _read_input(value: object) -> UrlInput:
    mapping = {"url": value} if isinstance(value, str) else take_mapping(value, "inputs")
    refuse_unknown(mapping, INPUT, "an input")
    url = mapping.get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or not _is_plain(url):
        raise Rejected(f"url must be an http or https address, but is {describe(url)}")
    sha256 = mapping.get("sha256") or ""
    if sha256 and (not isinstance(sha256, str) or not DIGEST.fullmatch(sha256)):
        raise Rejected("sha256 must be 64 digits from 0 to f, as sha256sum prints them")
    return UrlInput(url, _read_to(mapping.get("to"), url), sha256)


def _is_plain(url: str) -> bool:
    return len(url) <= URL_MAX and url.isascii() and url.isprintable() and " " not in url


def _read_to(value: object, url: str) -> str:
    """The last part of the address, unless it is said."""
    path = url.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2] if value is None else value
    if not isinstance(path, str) or not path or any(name in ("", ".", "..") for name in path.split("/")):
        raise Rejected(f"to must be a path below the job's folder, as in data/train.csv, but is {describe(value)}")
    if any(len(system_bytes(name, "to")) > NAME_BYTES_MAX for name in path.split("/")):
        raise Rejected(f"to has a name of more than {NAME_BYTES_MAX} bytes; shorten it")
    return path
