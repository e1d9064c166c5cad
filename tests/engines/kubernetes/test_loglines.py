"""Which lines of a stream are new, wherever it was cut and whatever repeats."""

from __future__ import annotations

import json
import random

from swell.engines.kubernetes.logs.lines import NANO, Had, LineReader

from .podlogs import stamped

T = 1_794_800_000 * NANO


def line(at: int, text: bytes) -> bytes:
    return stamped(at) + b" " + text


def kept(had: Had, *pieces: bytes) -> tuple[bytes, Had]:
    reader = LineReader(had)
    data = b"".join(part.data for piece in pieces for part in reader.feed(piece))
    return data, reader.had


def test_timestamps_are_taken_off_and_nothing_else() -> None:
    binary = bytes(byte for byte in range(256) if byte != 10)
    stream = line(T, b"one\n") + line(T + 1, b"\n") + line(T + 2, binary + b"\n") + line(T + 3, stamped(T) + b" two")
    data, had = kept(Had(), stream)
    assert data == b"one\n\n" + binary + b"\n" + stamped(T) + b" two"
    assert had == Had(T + 3, ((T // NANO, 3),), T + 3, 34)


def test_wherever_the_pieces_end_the_result_is_the_same() -> None:
    stream = line(T, b"one\n") + line(T + 5, b"\n") + line(T + 2 * NANO, b"x" * 40_000 + b"\n") + line(T + NANO, b"end")
    whole = kept(Had(), stream)
    for size in (1, 7, 31, 4096):
        assert kept(Had(), *(stream[at : at + size] for at in range(0, len(stream), size))) == whole


def test_an_offset_and_a_missing_fraction_are_understood() -> None:
    _, had = kept(Had(), b"2026-11-16T08:00:00+02:00 a\n2026-11-16T06:00:01.5Z b\n")
    assert (had.newest, had.since) == (1_794_808_801 * NANO + NANO // 2, "2026-11-16T06:00:00Z")


def test_lines_of_one_timestamp_are_counted() -> None:
    """A buffered program's lines may all have the same nanosecond."""
    _, had = kept(Had(), line(T, b"a\n") + line(T, b"b\n"))
    data, _ = kept(had, line(T, b"a\n") + line(T, b"b\n") + line(T, b"b\n") + line(T, b"c\n"))
    assert data == b"b\nc\n"


def test_a_line_stamped_before_the_newest_is_new_when_it_comes_after_what_is_had() -> None:
    """stdout and stderr are stamped first and put in order then."""
    first = line(T + NANO, b"err\n")
    _, had = kept(Had(), first)
    assert kept(had, first + line(T + NANO - 1, b"out\n"))[0] == b"out\n"


def test_a_line_had_in_part_goes_on_where_it_was_cut() -> None:
    _, had = kept(Had(), line(T, b"one\n") + line(T, b"tw"))
    data, after = kept(had, line(T, b"one\n") + line(T, b"t"), b"wo\n" + line(T + 1, b"three\n"))
    assert (data, after) == (b"o\nthree\n", Had(T + 1, ((T // NANO, 3),)))


def test_a_file_that_was_rotated_meanwhile_loses_no_line() -> None:
    """What was had is in another file by now, so fewer lines repeat than were counted, or none."""
    first = [line(T + number, b"%d\n" % number) for number in range(5)]
    _, had = kept(Had(), *first)
    assert kept(had, line(T + 9, b"new\n"))[0] == b"new\n"
    assert kept(had, first[3], first[4], line(T + 9, b"new\n"))[0] == b"new\n"


def test_a_line_whose_rest_is_lost_is_ended() -> None:
    _, had = kept(Had(), line(T, b"half"))
    data, after = kept(had, line(T + 5 * NANO, b"next\n"))
    assert (data, after) == (b"\nnext\n", Had(T + 5 * NANO, ((T // NANO + 5, 1),)))


def test_what_has_no_timestamp_is_the_end_of_an_older_line_or_the_kubelets_own_and_is_left_out() -> None:
    assert kept(Had(), b"unable to retrieve container logs for containerd://4711")[0] == b""
    assert kept(Had(), b"old\n" + line(T, b"new\n"))[0] == b"new\n"


def test_a_timestamp_cut_in_the_middle_is_not_taken_for_anything() -> None:
    data, had = kept(Had(), line(T, b"a\n") + stamped(T + 1)[:15])
    assert (data, had) == (b"a\n", Had(T, ((T // NANO, 1),)))


def test_it_survives_being_written_down() -> None:
    _, had = kept(Had(), line(T, b"one\n") + line(T + NANO, b"tw"))
    assert Had.parse(json.loads(json.dumps(had.document()))) == had


def test_streams_cut_anywhere_add_up_to_the_log() -> None:
    """Each stream begins at the moment that was asked for, as a kubelet's does."""
    for seed in range(300):
        print(f"seed {seed}")
        entries, text = cut_at_random(random.Random(seed))
        assert text == b"".join(data for _, data in entries)


def cut_at_random(lots: random.Random) -> tuple[list[tuple[int, bytes]], bytes]:
    """What was written, and what was kept of streams that broke."""
    entries: list[tuple[int, bytes]] = []
    at = T
    for number in range(lots.randrange(1, 40)):
        at += lots.choice((0, 0, 1, 1000, NANO // 3, NANO, 3 * NANO))
        early = lots.choice((0, 0, 0, min(500, at - T)))
        entries.append((at - early, b"%d" % number + lots.choice((b"", b"x" * 100, b"\r\0\xff")) + b"\n"))
    had, text = Had(), b""
    for is_last in [False] * lots.randrange(1, 6) + [True]:
        since = 0 if had.newest is None else (had.newest // NANO - 1) * NANO
        stream = b"".join(line(stamp, data) for stamp, data in entries if stamp >= since)
        stream = stream if is_last else stream[: lots.randrange(len(stream) + 1)]
        middle = lots.randrange(len(stream) + 1)
        more, had = kept(had, stream[:middle], stream[middle:])
        text += more
    return entries, text
