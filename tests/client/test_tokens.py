"""Where a token comes from, when it is read again, and what is no token."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from swell.client.tokens import CommandSource, FileSource, Token, VariableSource, expired_at
from swell.errors import Rejected, SwellError, Unavailable


def counting(folder: Path) -> str:
    """A command that prints another token each time it is run."""
    script = folder / "make-token"
    script.write_text(f'#!/bin/sh\necho run >> {folder}/runs\necho "token-$(wc -l < {folder}/runs)"\n')
    script.chmod(0o755)
    return str(script)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def test_a_command_is_run_once_for_a_process_and_again_when_what_it_made_has_worn_out(tmp_path):
    token = Token(CommandSource(counting(tmp_path)))
    assert [token.text() for _ in range(3)] == ["token-1"] * 3
    token.accepted("token-1")
    assert token.renew("token-1")
    assert (token.text(), runs(tmp_path)) == ("token-2", 2)


def test_a_command_whose_new_token_is_refused_is_not_run_again(tmp_path):
    token = Token(CommandSource(counting(tmp_path)))
    assert not token.renew(token.text())
    assert runs(tmp_path) == 1


def test_of_two_threads_that_are_refused_one_makes_the_new_token_for_both(tmp_path):
    token = Token(CommandSource(counting(tmp_path)))
    old = token.text()
    token.accepted(old)
    assert (token.renew(old), token.renew(old), runs(tmp_path)) == (True, True, 2)


def test_a_file_is_read_again_when_its_token_was_refused(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    token = Token(FileSource(path))
    assert token.text() == "one"
    assert not token.renew("one")
    path.write_text("two\n")
    assert token.text() == "one"
    assert token.renew("one")
    assert token.text() == "two"


def test_a_variable_is_what_it_is(monkeypatch):
    monkeypatch.setenv("SWELL_API_TOKEN", "word")
    token = Token(VariableSource())
    assert (token.text(), token.renew("word")) == ("word", False)


def _file(text: bytes | None):
    def make(folder: Path) -> FileSource:
        if text is not None:
            (folder / "token").write_bytes(text)
        return FileSource(folder / "token")

    return make


def _command(words: str):
    return lambda _: CommandSource(words)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (
            _file(None),
            Rejected,
            "the token file {0}/token cannot be read: No such file or directory; create it, or name ",
        ),
        (
            _file(b""),
            Rejected,
            "the token file {0}/token is empty, but a token is needed; to make one, run: kubectl create token NAME",
        ),
        (_file(b"two words"), Rejected, "the token file {0}/token does not contain exactly one token"),
        (_file(b"a\nb"), Rejected, "the token file {0}/token does not contain exactly one token"),
        (_file(b"x" * 20_000), Rejected, "the token file {0}/token does not contain exactly one token"),
        (_file(b"\xff"), Rejected, "the token file {0}/token cannot be read: it is not text"),
        (_command("no-such-thing x"), Rejected, "the token command `no-such-thing x` cannot be run: [Errno 2] No such"),
        (_command("'"), Rejected, "the token command `'` cannot be run: No closing quotation"),
        (_command(""), Rejected, "the token command `` cannot be run: it is empty"),
        (_command("true"), Rejected, "what the token command `true` printed is empty, but a token is needed"),
        (_command("false"), Unavailable, "the token command `false` failed with 1: it printed no message; fix that"),
        (
            _command("sh -c 'echo forbidden >&2; exit 3'"),
            Unavailable,
            "the token command `sh -c 'echo forbidden >&2; exit 3'` failed with 3: forbidden; fix that, or log in",
        ),
    ],
)
def test_what_is_no_token_is_refused_with_where_it_came_from(tmp_path, make, kind, said):
    with pytest.raises(SwellError) as caught:
        Token(make(tmp_path)).text()
    assert type(caught.value) is kind
    assert str(caught.value).startswith(said.format(tmp_path))


def test_a_token_command_does_not_read_what_is_piped_to_us():
    assert CommandSource("sh -c 'cat; echo word'").read() == "word"


def jwt(**claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


@pytest.mark.parametrize(
    ("token", "moment"),
    [
        (jwt(exp=1_000_000), 1_000_000.0),
        pytest.param(jwt(exp=time.time() + 3600), None, id="in-an-hour"),
        (jwt(), None),
        (jwt(exp="soon"), None),
        (jwt(exp=10**400), None),
        (jwt(exp=float("-inf")), None),
        (jwt(exp=float("nan")), None),
        ("a-secret", None),
        ("a.b.c", None),
        ("a.%%%.c", None),
    ],
)
def test_a_token_that_says_when_it_expires_is_believed(token, moment):
    assert expired_at(token) == moment
