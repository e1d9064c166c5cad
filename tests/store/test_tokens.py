"""A token counts until it is revoked, and not a moment longer, however often it was looked up before."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.store import EventRecord, open_store
from swell.store.store import Store
from swell.store.tokens import TokenRecord

TOLD = EventRecord("Told")


def token(name: str) -> TokenRecord:
    return TokenRecord(name, name, "ann", None, "worker", 1.0, 2e9, "digest")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "swell.db", lambda: 1000.0)
    yield store
    store.close()


def test_a_token_that_is_shown_again_and_again_is_read_once(store: Store, tmp_path: Path) -> None:
    """Two reads for each request were a quarter of what the server did for two hundred workers."""
    store.tokens.create(token("a"), TOLD).result()
    assert store.tokens.find("a") == token("a")
    with sqlite3.connect(tmp_path / "swell.db") as behind_its_back:
        behind_its_back.execute("DELETE FROM token")
    assert store.tokens.find("a") == token("a")


def test_a_token_is_refused_from_the_moment_at_which_its_revocation_is_answered(store: Store) -> None:
    """Others look it up all the time, also while it is being revoked."""
    is_over = threading.Event()

    def look_up() -> None:
        while not is_over.is_set():
            store.tokens.find("a")

    others = [threading.Thread(target=look_up) for _ in range(2)]
    for thread in others:
        thread.start()
    try:
        found = []
        for _ in range(50):
            store.tokens.create(token("a"), TOLD).result()
            found.append(store.tokens.find("a"))
            store.tokens.revoke("a", TOLD).result()
            found.append(store.tokens.find("a"))
        assert found == [token("a"), None] * 50
    finally:
        is_over.set()
        for thread in others:
            thread.join()


def test_a_revocation_that_could_not_be_recorded_leaves_the_token_good(store: Store, tmp_path: Path) -> None:
    store.tokens.create(token("a"), TOLD).result()
    other = open_store(tmp_path / "swell.db", lambda: 1000.0)
    try:
        store.take_over().result()
        other.take_over().result()
        assert store.tokens.revoke("a", TOLD).exception() is not None
        assert store.tokens.find("a") == token("a")
    finally:
        other.close()
