"""A volume that is made for a job: what its annotation says, and the claim that is made of it."""

from __future__ import annotations

import pytest

from swell.model.quantity import BadQuantity
from swell.model.shared_volume import ANNOTATION, SharedVolume, claim_of, parse_shared_volume, render_claim


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("10G", SharedVolume("10G", "ReadWriteMany")),
        ("1Ti ReadWriteOnce", SharedVolume("1Ti", "ReadWriteOnce")),
        ("500M ReadOnlyMany fast-ssd", SharedVolume("500M", "ReadOnlyMany", "fast-ssd")),
    ],
)
def test_an_annotation_says_size_mode_and_class(text, volume):
    assert parse_shared_volume(text) == volume
    assert parse_shared_volume(str(volume)) == volume


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no volume; write its size, mode and class, as in 10G ReadWriteMany fast"),
        ("0G", "'0G' is no volume"),
        ("-1G", "'-1G' is no volume"),
        ("10", "'10' is no volume"),
        ("10G  ReadWriteMany", "'' is no access mode"),
        ("10G ReadWriteMany a b", "'10G ReadWriteMany a b' is no volume"),
        ("10G RWX", "'RWX' is no access mode; write one of ReadWriteMany, ReadWriteOnce"),
        ("10G ReadWriteMany Fast", "'Fast' is no name of a storage class"),
        ("10G ReadWriteMany ../x", "'../x' is no name of a storage class"),
    ],
)
def test_what_is_no_volume_is_refused(text, said):
    with pytest.raises(BadQuantity) as caught:
        parse_shared_volume(text)
    assert str(caught.value).startswith(said)


def test_the_claim_has_the_objects_name_and_the_labels_by_which_it_is_found_again():
    metadata = {"name": "train", "annotations": {ANNOTATION: "10G ReadWriteOnce fast"}}
    assert claim_of(metadata) == "train-shared"
    assert render_claim(metadata, {"a": "b"}) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "train-shared", "labels": {"a": "b"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10G"}},
            "storageClassName": "fast",
        },
    }
    assert "storageClassName" not in render_claim({**metadata, "annotations": {ANNOTATION: "1G"}}, {})["spec"]


def test_an_object_that_asks_for_none_has_none():
    assert (claim_of({"name": "a"}), claim_of({"name": "a", "annotations": None})) == ("", "")
