"""Where a server listens beside loopback, and to which names it answers there."""

from __future__ import annotations

import pytest

from swell.errors import Rejected
from swell.machine.listening import Listening, read_listening

LOCAL = {"127.0.0.1:8080", "localhost:8080"}


def test_without_a_word_it_listens_on_loopback_only():
    assert read_listening(None, None) is None


@pytest.mark.parametrize(
    ("listen", "advertise", "allowed", "expected"),
    [
        (
            "10.1.2.3:8080",
            None,
            (),
            Listening("10.1.2.3", 8080, "https://10.1.2.3:8080", frozenset(LOCAL | {"10.1.2.3:8080"}), is_secure=True),
        ),
        (
            "0.0.0.0:8080",
            "http://swell.ml.svc:8080",
            ("swell", "10.0.0.7:9090"),
            Listening(
                "0.0.0.0",
                8080,
                "http://swell.ml.svc:8080",
                frozenset(LOCAL | {"swell.ml.svc:8080", "swell", "swell:8080", "10.0.0.7:9090"}),
            ),
        ),
        (
            "[::]:8080",
            "https://swell.example.org/",
            (),
            Listening(
                "::",
                8080,
                "https://swell.example.org",
                frozenset(LOCAL | {"swell.example.org", "swell.example.org:443"}),
            ),
        ),
        (
            "[fd00::1]:8080",
            None,
            ("fd00::2",),
            Listening(
                "fd00::1",
                8080,
                "https://[fd00::1]:8080",
                frozenset(LOCAL | {"[fd00::1]:8080", "[fd00::2]", "[fd00::2]:8080"}),
                is_secure=True,
            ),
        ),
    ],
)
def test_it_answers_to_the_names_it_was_told_of(listen, advertise, allowed, expected):
    assert read_listening(listen, advertise, allowed) == expected


@pytest.mark.parametrize("listen", ["8080", ":8080", "localhost:8080", "10.1.2.3", "10.1.2.3:0", "::1:8080", "1.2.3:x"])
def test_an_address_that_is_none_is_refused(listen):
    with pytest.raises(Rejected) as refused:
        read_listening(listen, None)
    assert str(refused.value) == (
        f"--listen {listen!r} is not an address with a port; write 0.0.0.0:8080, 10.1.2.3:8080 or [::]:8080"
    )


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:8080"])
def test_every_address_is_none_that_a_job_could_call(listen):
    with pytest.raises(Rejected) as refused:
        read_listening(listen, None)
    assert str(refused.value) == (
        f"--listen {listen} means all addresses of this machine, but jobs elsewhere need one name or address; "
        "add --advertise https://NAME:PORT"
    )


@pytest.mark.parametrize(
    "advertise",
    [
        "swell:8080",
        "ftp://swell",
        "http://",
        "http://a b",
        "http://u:p@swell",
        "http://swell/x",
        "http://swell:x",
        "http://s?q",
    ],
)
def test_a_url_that_is_no_servers_is_refused(advertise):
    with pytest.raises(Rejected) as refused:
        read_listening("0.0.0.0:8080", advertise)
    assert str(refused.value) == (
        f"--advertise {advertise!r} is not a server address; write http://NAME:PORT or https://NAME"
    )


@pytest.mark.parametrize("name", ["", "a b", "swell:x", "http://swell", "*"])
def test_a_name_that_is_no_hosts_is_refused(name):
    with pytest.raises(Rejected, match="is not a host name; write NAME or NAME:PORT"):
        read_listening("10.1.2.3:8080", None, (name,))


@pytest.mark.parametrize(("advertise", "allowed"), [("http://swell", ()), (None, ("swell",))])
def test_names_without_anything_to_call_are_refused(advertise, allowed):
    with pytest.raises(Rejected, match="need --listen; add --listen ADDRESS:PORT"):
        read_listening(None, advertise, allowed)


@pytest.mark.parametrize(
    ("listen", "advertise", "how", "url", "is_secure"),
    [
        ("10.1.2.3:8443", None, {}, "https://10.1.2.3:8443", True),
        ("10.1.2.3:8443", None, {"plain_http": True}, "http://10.1.2.3:8443", False),
        ("127.0.0.2:8080", None, {}, "http://127.0.0.2:8080", False),
        ("[::1]:8080", None, {}, "http://[::1]:8080", False),
        ("127.0.0.2:8080", None, {"has_certificate": True}, "https://127.0.0.2:8080", True),
        ("0.0.0.0:8443", "https://box.lab:8443", {}, "https://box.lab:8443", True),
        ("0.0.0.0:443", "https://box.lab", {}, "https://box.lab", True),
        ("0.0.0.0:8080", "https://box.lab", {}, "https://box.lab", False),  # a proxy in front of us
        ("0.0.0.0:8080", "https://box.lab", {"has_certificate": True}, "https://box.lab", True),
        ("0.0.0.0:8443", "https://box.lab:8443", {"plain_http": True}, "https://box.lab:8443", False),
        ("0.0.0.0:8080", "http://swell.ml.svc:8080", {}, "http://swell.ml.svc:8080", False),
    ],
)
def test_beyond_loopback_it_speaks_tls_unless_something_before_it_does_or_plain_http_is_said(
    listen, advertise, how, url, is_secure
):
    found = read_listening(listen, advertise, **how)
    assert found is not None
    assert (found.url, found.is_secure) == (url, is_secure)


@pytest.mark.parametrize(
    ("advertise", "plain_http", "said"),
    [(None, True, "--plain-http"), ("http://box.lab:8080", False, "--advertise http://box.lab:8080")],
)
def test_a_certificate_and_no_tls_is_refused(advertise, plain_http, said):
    with pytest.raises(Rejected) as refused:
        read_listening("10.1.2.3:8080", advertise, has_certificate=True, plain_http=plain_http)
    assert str(refused.value) == f"--tls-cert asks for TLS and {said} for none; leave one of them out"
