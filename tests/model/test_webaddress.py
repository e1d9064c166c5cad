"""An address is read once; a pattern names exactly what lies below it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.model.webaddress import AddressPattern, BadAddress, WebAddress


@pytest.mark.parametrize(
    ("text", "parts", "shown"),
    [
        (
            "https://Hooks.Example.ORG/services/T0?x=1#here",
            ("https", "hooks.example.org", 443, "/services/T0?x=1"),
            "https://hooks.example.org",
        ),
        ("http://example.org.:8080", ("http", "example.org", 8080, "/"), "http://example.org:8080"),
        ("http://[2001:DB8::1]:81/a", ("http", "2001:db8::1", 81, "/a"), "http://[2001:db8::1]:81"),
        ("http://127.1/", ("http", "127.1", 80, "/"), "http://127.1"),
    ],
)
def test_an_address_is_a_scheme_a_host_a_port_and_what_is_asked_for(text, parts, shown):
    read = WebAddress.parse(text)
    assert ((read.scheme, read.host, read.port, read.target), read.origin) == (parts, shown)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "//example.org",
        "file:///etc/passwd",
        "http://a\tb/",
        "http://a\n.example/",
        "http://a/\r\nHost: b",
        "http://user@a/",
        "http://:80/",
        "http://a:-1/",
        "http://a:x/",
        "http://[::1%25eth0]/",
        "http://[v1.x]/",
        "http://a%2eb/",
        "http://exämple.org/",
        "http://a/..",
        "http://a/b/%2E%2e/c",
        "http://a/b/..%5cc",
        "http://" + "a" * 3000,
    ],
)
def test_what_two_readers_could_read_differently_is_none(text):
    with pytest.raises(BadAddress):
        WebAddress.parse(text)


@given(st.text(alphabet=string.printable + "äé\\\0", max_size=60))
def test_whatever_is_given_is_an_address_or_refused(text):
    for whole in (text, f"http://{text}", f"https://example.org{text}"):
        try:
            read = WebAddress.parse(whole)
        except BadAddress:
            continue
        again = WebAddress.parse(read.origin + read.target)
        assert (again, "\n" in read.target or " " in read.target) == (read, False)


HOOKS = "https://hooks.example.org/services/"


@pytest.mark.parametrize(
    ("pattern", "address", "is_named"),
    [
        (HOOKS, "https://hooks.example.org/services/T0/B0", True),
        (HOOKS, "https://hooks.example.org/services", True),
        (HOOKS, "https://HOOKS.example.org:443/services/x", True),
        (HOOKS, "https://hooks.example.org/", False),
        (HOOKS, "https://hooks.example.org/servicesx", False),
        (HOOKS, "http://hooks.example.org/services/", False),
        (HOOKS, "https://hooks.example.org:8443/services/", False),
        (HOOKS, "https://hooks.example.org.evil.example/services/", False),
        (HOOKS, "https://evil-hooks.example.org/services/", False),
        ("https://example.org", "https://example.org/any/thing?x", True),
        ("https://*.example.org/", "https://a.b.example.org/", True),
        ("https://*.example.org/", "https://example.org/", False),
        ("https://*.example.org/", "https://evilexample.org/", False),
        ("http://10.0.0.1:8080/", "http://10.0.0.1:8080/x", True),
        ("http://10.0.0.1:8080/", "http://10.0.0.10:8080/x", False),
    ],
)
def test_a_pattern_names_one_scheme_host_and_port_and_what_lies_below_a_path(pattern, address, is_named):
    read = AddressPattern.parse(pattern)
    assert (read.names(WebAddress.parse(address)), AddressPattern.parse(str(read))) == (is_named, read)


@pytest.mark.parametrize("text", ["*", "https://*/", "hooks.example.org", "https://a/?x=1", "https://*.10.0.0.1/"])
def test_a_pattern_that_names_everything_or_nothing_is_refused(text):
    with pytest.raises(BadAddress):
        AddressPattern.parse(text)
