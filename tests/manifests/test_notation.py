"""Quantities as Kubernetes writes them."""

from __future__ import annotations

import pytest

from swell.manifests.notation import parse_kubernetes_cpus, parse_kubernetes_gpus, parse_kubernetes_memory
from swell.model.quantity import BadQuantity


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("500m", 500),
        ("1.5", 1500),
        (".5", 500),
        ("2.", 2000),
        ("+1", 1000),
        (0.25, 250),
        (4, 4000),
        ("0", 0),
        ("1e1", 10_000),
        ("5E-1", 500),
        ("1k", 1_000_000),
        ("100u", 1),
        ("1n", 1),
        ("0.0001", 1),
    ],
)
def test_cpus_are_read_to_the_thousandth_and_rounded_up(text, milli):
    assert parse_kubernetes_cpus(text) == milli


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("2Gi", 2048),
        ("512Mi", 512),
        ("512M", 489),
        ("1e3", 1),
        ("1048576", 1),
        ("1048577", 2),
        ("1G", 954),
        ("1.5Gi", 1536),
        ("128974848000m", 123),
        ("1Ki", 1),
        ("1Ti", 1024 * 1024),
        ("1E3", 1),
        (0, 0),
    ],
)
def test_memory_is_read_in_bytes_and_rounded_up_to_a_mebibyte(text, mib):
    assert parse_kubernetes_memory(text) == mib


@pytest.mark.parametrize(("text", "count"), [("1", 1), (8, 8), ("0", 0), ("2.0", 2), ("1e1", 10), ("2000m", 2)])
def test_gpus_are_whole(text, count):
    assert parse_kubernetes_gpus(text) == count


NOT_A_QUANTITY = "is not a quantity; Kubernetes writes 500m, 1.5, 2Gi, 512M or 1e3"


@pytest.mark.parametrize("parse", [parse_kubernetes_cpus, parse_kubernetes_memory, parse_kubernetes_gpus])
@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "many", "1 Gi", "1gi", "1GI", "1K", "1Gb", "1e", "e3", "1e3Gi", "0x10", "1_000", "1,5", "nan"],
        *["inf", "²", "١", "1..4", "9" * 101, float("inf"), float("nan")],
    ],
)
def test_what_kubernetes_would_not_read_is_refused(parse, text):
    with pytest.raises(BadQuantity, match=NOT_A_QUANTITY):
        parse(text)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parse_kubernetes_cpus, "-1", "'-1' is below zero; nothing can be asked for less than 0"),
        (parse_kubernetes_cpus, "1e9", "'1e9' is more CPUs than any machine has; write 2, 0.5 or 500m"),
        (parse_kubernetes_cpus, "1e999999999", "'1e999999999' is more CPUs than any machine has; write 2, 0.5 or 500m"),
        (parse_kubernetes_gpus, "9" * 21, f"'{'9' * 21}' is more GPUs than any job may have (100000)"),
        (parse_kubernetes_memory, "-1Gi", "'-1Gi' is below zero; nothing can be asked for less than 0"),
        (parse_kubernetes_memory, "400m", "'400m' is less than a byte: m means thousandths; write 512Mi or 2Gi"),
        (parse_kubernetes_memory, "2Ei", "'2Ei' is more memory than any machine has; write 512Mi or 2Gi"),
        (parse_kubernetes_gpus, "-1", "'-1' is below zero; nothing can be asked for less than 0"),
        (parse_kubernetes_gpus, "0.5", "'0.5' is a part of a GPU; they are given whole: write 1"),
        (parse_kubernetes_gpus, "500m", "'500m' is a part of a GPU; they are given whole: write 1"),
        (parse_kubernetes_gpus, "1M", "'1M' is more GPUs than any job may have (100000)"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(parse, text, said):
    with pytest.raises(BadQuantity) as caught:
        parse(text)
    assert str(caught.value) == said


def test_a_huge_text_is_not_repeated_in_full():
    with pytest.raises(BadQuantity) as caught:
        parse_kubernetes_cpus("x" * 1_000_000)
    assert len(str(caught.value)) < 200
