"""The certificate that a server shows beyond loopback, and how it is known again."""

from __future__ import annotations

import ssl
import stat
import subprocess
from pathlib import Path

import pytest

from engines.kubernetes.certificates import self_signed
from swell.config import Config, parse_config
from swell.errors import Rejected, Unavailable
from swell.machine.certificate import Certificate, ServedCertificate, certificate_of, own_certificate, read_fingerprint
from swell.machine.listening import listening_of
from swell.machine.state_folder import StateFolder

HEX = "ab" * 32
WRITTEN = ":".join(["AB"] * 32)


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    made = StateFolder(tmp_path / "state")
    made.prepare()
    return made


def said_by_openssl(path: Path, *words: str) -> str:
    done = subprocess.run(
        ["openssl", "x509", "-in", str(path), "-noout", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.slow  # needs openssl
def test_a_certificate_of_our_own_is_made_once_and_known_by_the_fingerprint_that_openssl_prints(state):
    hosts = ("10.1.2.3:8443", "box.lab:8443", "[fd00::1]:8443", "localhost:8443")
    made = own_certificate(state, hosts)
    assert said_by_openssl(made.chain, "-fingerprint", "-sha256").rstrip().rpartition("=")[2] == made.fingerprint
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    names = said_by_openssl(made.chain, "-ext", "subjectAltName").splitlines()[1].strip()
    assert names == "DNS:box.lab, DNS:localhost, IP Address:10.1.2.3, IP Address:FD00:0:0:0:0:0:0:1"
    assert own_certificate(state, ("another.lab:1",)).fingerprint == made.fingerprint
    assert made.context().minimum_version == ssl.TLSVersion.TLSv1_2
    assert sorted(path.name for path in state.root.glob("*tls*")) == ["tls-cert.pem", "tls-key.pem"]


def test_without_openssl_it_is_said_what_to_do(state, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=r"install openssl 1\.1\.1 or newer, name a certificate with --tls-cert and"):
        own_certificate(state, ("box.lab:8443",))
    assert not list(state.root.glob("*tls*"))


@pytest.mark.parametrize(
    "text", [HEX, HEX.upper(), WRITTEN, f"SHA256:{WRITTEN}", f"sha256 Fingerprint={WRITTEN}", f" {HEX}\n"]
)
def test_a_fingerprint_may_be_written_as_anybody_prints_it(text):
    assert read_fingerprint(text) == WRITTEN


@pytest.mark.parametrize("text", ["", "x" * 64, HEX[:-1], HEX + "ab", "SHA1:" + HEX, "AB CD"])
def test_what_is_no_fingerprint_is_refused(text):
    with pytest.raises(Rejected, match="is not a SHA-256 fingerprint; write the 64 hexadecimal digits"):
        read_fingerprint(text)


def test_only_a_server_that_speaks_tls_has_a_certificate(state):
    for said in ({}, {"listen": "127.0.0.2:80"}, {"listen": "10.1.2.3:80", "plain_http": True}):
        config = parse_config(said)
        assert certificate_of(state, config, listening_of(config)) is None
    named = Config(listen="10.1.2.3:80", tls_cert="/a/cert", tls_key="/a/key")
    expected = Certificate(Path("/a/cert"), Path("/a/key"), is_own=False)
    assert certificate_of(state, named, listening_of(named)) == expected
    with pytest.raises(Rejected, match="tls_cert and tls_key belong together; name both, or neither"):
        parse_config({"listen": "10.1.2.3:80", "tls_cert": "/a/cert"})


def test_files_that_cannot_be_used_are_named(tmp_path):
    pair = Certificate(tmp_path / "cert", tmp_path / "key", is_own=False)
    with pytest.raises(Rejected, match="cert cannot be read: No such file or directory"):
        pair.context()
    pair.chain.write_text("x")
    pair.key.write_text("x")
    with pytest.raises(Rejected, match="cannot be used together"):
        pair.context()
    with pytest.raises(Rejected, match="contains no PEM certificate"):
        assert pair.fingerprint


def test_a_renewed_certificate_is_shown_when_both_files_are_there_and_until_then_the_last(tmp_path, caplog):
    """Whoever renewed one (every 90 days, by a program) had to restart the server."""
    pair, renewed = self_signed(tmp_path, "named"), self_signed(tmp_path, "renewed")
    certificate = Certificate(pair.certificate, pair.key, is_own=False)
    served = ServedCertificate(certificate)
    first = served.context()
    served.look()
    assert served.context() is first
    renewed.certificate.replace(pair.certificate)
    for _ in range(2):
        served.look()
        assert served.context() is first
    assert len(caplog.records) == 1
    assert "cannot be used together" in caplog.text
    renewed.key.replace(pair.key)
    served.look()
    assert served.context() is not first
    pair.key.unlink()
    second = served.context()
    served.look()
    assert served.context() is second
    assert "cannot be read: No such file or directory" in caplog.text
