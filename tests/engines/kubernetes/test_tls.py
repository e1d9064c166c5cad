"""The port over TLS: whom it trusts, and how it shows who it is. Certificates are made by openssl."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swell.engines.kubernetes import Access, ApiClient
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.credentials import ClientCertificate, Credential, Fixed
from swell.engines.kubernetes.client.resources import PODS
from swell.errors import Unavailable

from .apiserver import ApiServer
from .certificates import Pair, self_signed
from .conftest import access_to
from .following import Follower, state_of

pytestmark = pytest.mark.slow  # needs openssl


@pytest.fixture
def ours(tmp_path: Path) -> Pair:
    return self_signed(tmp_path, "server")


@pytest.fixture
def theirs(tmp_path: Path) -> Pair:
    return self_signed(tmp_path, "client")


@pytest.fixture
def server(tmp_path: Path, ours: Pair) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path / "token", tls=served_with(ours))
    yield server
    server.close()


def served_with(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def listed(access: Access) -> int:
    port = ApiClient(access, answer_s=5.0)
    try:
        return len(port.list(Selection(PODS)).items)
    finally:
        port.close()


def test_only_a_server_of_the_named_authority_is_trusted(server: ApiServer, ours: Pair, theirs: Pair) -> None:
    access = access_to(server)
    assert listed(replace(access, authority=ours.certificate.read_bytes())) == 0
    assert listed(replace(access, is_insecure=True)) == 0
    for wrong in (replace(access, authority=theirs.certificate.read_bytes()), access):
        with pytest.raises(Unavailable, match=r"no safe connection to the API server.*CERTIFICATE_VERIFY_FAILED"):
            listed(wrong)


def test_the_certificate_must_carry_the_name_that_is_asked_for(server: ApiServer, ours: Pair) -> None:
    access = replace(access_to(server), authority=ours.certificate.read_bytes())
    with pytest.raises(Unavailable, match=r"not valid for 'kube.example'"):
        listed(replace(access, server_name="kube.example"))


def test_a_client_certificate_shows_who_we_are(tmp_path: Path, ours: Pair, theirs: Pair) -> None:
    tls = served_with(ours)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(theirs.certificate)
    server = ApiServer(tmp_path / "token", tls=tls)
    certificate = ClientCertificate(theirs.certificate.read_bytes(), theirs.key.read_bytes())
    access = replace(access_to(server), authority=ours.certificate.read_bytes())
    with_it = replace(access, credentials=Fixed(Credential.bearer(server.token, certificate), "us"))
    assert listed(with_it) == 0
    with pytest.raises(Unavailable):
        listed(access)
    server.close()


def test_a_client_certificate_knows_when_it_ends(theirs: Pair) -> None:
    end = Credential((), ClientCertificate(theirs.certificate.read_bytes(), b"")).end()
    assert end is not None
    assert abs(end - datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)) < datetime.timedelta(minutes=5)


def test_a_reflector_follows_and_stops_at_once(server: ApiServer, ours: Pair) -> None:
    port = ApiClient(replace(access_to(server), authority=ours.certificate.read_bytes()), answer_s=5.0)
    follower = Follower(port, Selection(PODS))
    for number in range(100):
        server.storage.create("pods", ("a", f"p{number}"), {})
    follower.await_state(state_of(server.storage.state("pods")))
    assert follower.reflector.stop(2.0)
    port.close()
