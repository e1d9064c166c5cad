"""How is the image built that an AIchor manifest names?

Read with the manifest, in its bounds, and told to `swell submit --build`, which builds it as whoever types it: a
Dockerfile runs what it likes, so no server builds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import Fields, describe, is_true, shorten, system_bytes, take_optional, take_text

BUILDER = Fields(used=("image", "dockerfile", "context", "buildArgs", "target", "skipBuild"), idle=("registry",))
SKIP = Fields(used=("enabled",), idle=("experimentID", "failIfNotFound"))
WORD_BYTES_MAX = 100_000  # of a command; the kernel takes 128 KiB


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """What a builder section asks a program like podman to build."""

    image: str
    dockerfile: str
    context: str  #: a folder, relative to where it is typed
    arguments: dict[str, str]
    target: str | None  #: None: the last stage
    is_skipped: bool  #: the image is there already


def read_build(value: object) -> ImageBuild | None:
    """None: there is no builder section, or it names no image."""
    given = take_optional(value, "builder")
    BUILDER.check(given, "builder")
    if given.get("image") is None:
        return None
    skip = take_optional(given.get("skipBuild"), "builder.skipBuild")
    SKIP.check(skip, "builder.skipBuild")
    return ImageBuild(
        image=_word(given["image"], "builder.image"),
        dockerfile=_word(given.get("dockerfile", "Dockerfile"), "builder.dockerfile"),
        context=_word(given.get("context", "."), "builder.context"),
        arguments=_arguments(given.get("buildArgs")),
        target=None if given.get("target") is None else _word(given["target"], "builder.target"),
        is_skipped=is_true(skip.get("enabled"), "builder.skipBuild.enabled"),
    )


def _arguments(value: object) -> dict[str, str]:
    where = "builder.buildArgs"
    found: dict[str, str] = {}
    for name, text in take_optional(value, where).items():
        if not name or "=" in name:
            raise Rejected(f"{where} has the name {shorten(name)!r}; a name is not empty and has no '='")
        found[name] = _argument(text, f"{where}.{shorten(name)}")
        _refuse_long(f"{name}={found[name]}", f"{where}.{shorten(name)}")
    return found


def _argument(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return take_text(value, where)


def _word(value: object, where: str) -> str:
    """One that cannot be taken for an option."""
    text = take_text(value, where)
    if not text or text.startswith("-"):
        raise Rejected(f"{where} must be text that does not begin with '-', but is {describe(value)}")
    _refuse_long(text, where)
    return text


def _refuse_long(text: str, where: str) -> None:
    if len(system_bytes(text, where)) > WORD_BYTES_MAX:
        raise Rejected(f"{where} is longer than {WORD_BYTES_MAX} bytes, more than a command takes; shorten it")
