"""How the image of an AIchor manifest is built: read in the manifest's bounds, and told to who asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests import read_manifests
from swell.manifests.image_build import ImageBuild, read_build

from .kubernetes import CONTEXT

BUILDS = replace(CONTEXT, in_images=True)
MANIFEST = """\
kind: AIchorManifest
apiVersion: 0.2.3
builder: {image: count}
spec: {operator: jobset, image: count, command: echo, types: {worker: {resources: {cpus: 1}}}}
"""


def test_what_is_not_said_of_a_build_is_what_podman_takes() -> None:
    assert read_build({"image": "count"}) == ImageBuild("count", "Dockerfile", ".", {}, None, is_skipped=False)


def test_every_field_of_a_builder_section_is_read() -> None:
    given = {"image": "count:1", "dockerfile": "a/Dockerfile", "context": "src", "target": "run", "registry": "r"}
    given |= {"buildArgs": {"A": "b c", "PYTHON": 3.1, "DEBUG": True}, "skipBuild": {"enabled": True}}
    arguments = {"A": "b c", "PYTHON": "3.1", "DEBUG": "true"}
    assert read_build(given) == ImageBuild("count:1", "a/Dockerfile", "src", arguments, "run", is_skipped=True)


def test_a_manifest_without_an_image_to_build_has_none() -> None:
    assert (read_build(None), read_build({}), read_build({"context": "."})) == (None, None, None)


@pytest.mark.parametrize(
    ("builder", "said"),
    [
        ("count", "builder must be a mapping of names to values, but is 'count'"),
        ({"image": "-v/:/x"}, "builder.image must be text that does not begin with '-', but is '-v/:/x'"),
        ({"image": "i", "context": "--x"}, "builder.context must be text that does not begin with '-'"),
        ({"image": "i", "dockerfile": 3}, "builder.dockerfile must be text, but is a number: 3"),
        ({"image": "i", "target": "-o"}, "builder.target must be text that does not begin with '-'"),
        ({"image": "i", "buildArgs": ["A=b"]}, "builder.buildArgs must be a mapping of names to values"),
        ({"image": "i", "buildArgs": {"A=B": "c"}}, "builder.buildArgs has the name 'A=B'"),
        ({"image": "i", "buildArgs": {"A": None}}, "builder.buildArgs.A must be text, but is empty"),
        ({"image": "i", "buildArgs": {"A": "x" * 100_000}}, "builder.buildArgs.A is longer than 100000 bytes"),
        ({"image": "i", "context": "a\0b"}, "builder.context holds a null character"),
        ({"image": "i", "buildArg": {}}, "builder has no field 'buildArg'; did you mean 'buildArgs'"),
        ({"image": "i", "skipBuild": {"enabled": "yes"}}, "builder.skipBuild.enabled must be true or false"),
        ({"image": "i", "skipBuild": True}, "builder.skipBuild must be a mapping of names to values"),
    ],
)
def test_what_is_no_builder_section_is_refused(builder: Any, said: str) -> None:
    with pytest.raises(Rejected) as caught:
        read_build(builder)
    assert str(caught.value).startswith(said)


def test_to_build_it_a_manifest_must_say_what_to_build() -> None:
    [found] = read_manifests(MANIFEST, BUILDS)
    assert found.build is not None
    for text in (MANIFEST.replace("builder: {image: count}\n", ""), "#!/bin/sh\ntrue\n"):
        with pytest.raises(Rejected, match="--build is for an AIchorManifest with a builder section; leave it out"):
            read_manifests(text, BUILDS)


def test_a_manifest_with_two_builder_sections_is_refused_before_anything_is_built() -> None:
    with pytest.raises(Rejected, match="line 4: the field 'builder' is given twice; keep one"):
        read_manifests(MANIFEST.replace("spec:", "builder: {image: other}\nspec:"), BUILDS)
