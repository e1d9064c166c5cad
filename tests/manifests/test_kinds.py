"""A kind of document is one entry in one list; nothing else asks for it by its name."""

from __future__ import annotations

import ast
from pathlib import Path

import swell
from swell.engines.kubernetes.objects.kinds import KINDS as OBJECT_RULES
from swell.manifests.read import READERS, TRANSLATORS
from swell.model.kind import KINDS, find_kind

SOURCE = Path(swell.__file__).parent
LIST = SOURCE / "model" / "kind.py"
NAMES = {kind.name for kind in KINDS} - {"Job", "Pod"}  # these two are also words of Kubernetes itself


def test_every_kind_has_a_reader_and_where_a_controller_makes_its_pods_the_rules_of_its_object():
    assert {*READERS, *TRANSLATORS} == set(KINDS)
    with_rules = {(kind.api_version, kind.name) for kind in KINDS if kind.makes_pods}
    assert {(rules.api_version, rules.name) for rules in OBJECT_RULES.values()} == with_rules


def test_no_two_kinds_are_written_alike():
    assert [find_kind(kind.api_version, kind.name) for kind in KINDS] == list(KINDS)


def test_no_other_module_names_a_kind_in_its_code():
    strays = [
        f"{file.relative_to(SOURCE)}:{node.lineno}: {node.value!r}"
        for file in SOURCE.rglob("*.py")
        if file != LIST
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in NAMES
    ]
    assert strays == []
