"""Where the API server is and who we are there: from files, as kubectl reads them."""

from __future__ import annotations

import base64
import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from swell.engines.kubernetes import Access, find_access
from swell.engines.kubernetes.client.credentials import READ_AGAIN_S, ClientCertificate, Credential, Files
from swell.errors import Rejected, Unavailable

CLUSTER = {"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"}}
USER = {"name": "u", "user": {"token": "t"}}
CONTEXT = {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}


def write(path: Path, **parts: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({name.replace("_", "-"): value for name, value in parts.items()}))
    return path


def config(path: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    return write(
        path,
        clusters=[{"name": "c", "cluster": {**CLUSTER["cluster"], **(cluster or {})}}],  # type: ignore[dict-item]
        users=[{"name": "u", "user": USER["user"] if user is None else user}],
        contexts=[CONTEXT],
        current_context="x",
    )


def found(path: Path, **environ: str) -> Access:
    return find_access(path, environ=environ)


def refusal(path: Path | None, context: str | None = None, **environ: str) -> str:
    with pytest.raises(Rejected) as caught:
        find_access(path, context, environ=environ)
    return str(caught.value)


def test_a_kubeconfig_says_where_who_and_in_which_namespace(tmp_path: Path) -> None:
    access = found(config(tmp_path / "k"))
    assert (access.server, access.namespace, access.source) == (
        "https://10.0.0.1:6443",
        "ml",
        f"context 'x' of {tmp_path}/k",
    )
    assert access.credentials.current() == Credential((("Authorization", "Bearer t"),))


def test_a_named_file_comes_before_kubeconfig_and_that_before_the_home_folder(tmp_path: Path) -> None:
    def at(path: Path, server: str) -> Path:
        return config(path, {"server": server})

    named, listed = at(tmp_path / "named", "https://named"), at(tmp_path / "listed", "https://listed")
    at(tmp_path / ".kube/config", "https://home")
    home = {"HOME": str(tmp_path)}
    in_pod = {**home, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert [
        find_access(named, environ={**in_pod, "KUBECONFIG": str(listed)}).server,
        find_access(environ={**in_pod, "KUBECONFIG": str(listed)}).server,
        find_access(environ=in_pod).server,
    ] == ["https://named", "https://listed", "https://home"]


def test_of_several_files_the_first_word_counts_and_missing_ones_are_skipped(tmp_path: Path) -> None:
    first = write(tmp_path / "1", clusters=[CLUSTER], contexts=[CONTEXT])
    other = {"name": "c", "cluster": {"server": "https://never"}}
    second = write(tmp_path / "2", clusters=[other], users=[USER], current_context="x")
    listed = os.pathsep.join(map(str, (first, tmp_path / "missing", second)))
    access = find_access(environ={"KUBECONFIG": listed})
    assert (access.server, access.credentials.source) == ("https://10.0.0.1:6443", f"user 'u' of {second}")


def test_a_relative_path_is_relative_to_the_file_it_stands_in(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/ca.crt").write_text("authority")
    (tmp_path / "sub/token").write_text("from-file\n")
    access = found(config(tmp_path / "sub/k", {"certificate-authority": "ca.crt"}, {"tokenFile": "token"}))
    assert access.authority == b"authority"
    assert access.credentials.current() == Credential.bearer("from-file")


def test_what_is_written_inline_comes_before_files(tmp_path: Path) -> None:
    def inline(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    user = {
        "client-certificate-data": inline("chain"),
        "client-certificate": "/nowhere",
        "client-key-data": inline("key"),
    }
    access = found(config(tmp_path / "k", {"certificate-authority-data": inline("authority")}, user))
    assert access.authority == b"authority"
    assert access.credentials.current() == Credential((), ClientCertificate(b"chain", b"key"))


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({"username": "eva", "password": "p"}, {"Authorization": "Basic ZXZhOnA="}),
        ({}, {}),
        (
            {"token": "t", "as": "ops", "as-groups": ["a"]},
            {"Authorization": "Bearer t", "Impersonate-User": "ops", "Impersonate-Group": "a"},
        ),
    ],
)
def test_a_user_may_be_known_by(tmp_path: Path, user: dict[str, Any], headers: dict[str, str]) -> None:
    assert dict(found(config(tmp_path / "k", user=user)).credentials.current().headers) == headers


def test_other_words_of_a_cluster_are_kept(tmp_path: Path) -> None:
    access = found(config(tmp_path / "k", {"insecure-skip-tls-verify": True, "tls-server-name": "kube.example"}))
    assert (access.is_insecure, access.server_name) == (True, "kube.example")


# -- in a pod ------------------------------------------------------------------------------------------------------


def pod(folder: Path) -> dict[str, Any]:
    for name, text in {"token": "t1\n", "ca.crt": "authority", "namespace": "swell\n"}.items():
        (folder / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/nonexistent"}
    return {"environ": environ, "account": folder}


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    access = find_access(**pod(tmp_path))
    assert (access.server, access.namespace, access.authority) == ("https://[fd00::1]:443", "swell", b"authority")
    assert access.credentials.current() == Credential.bearer("t1")


def test_a_pod_without_service_account_says_which_setting_is_missing(tmp_path: Path) -> None:
    asked = pod(tmp_path)
    (tmp_path / "token").unlink()
    with pytest.raises(Rejected) as caught:
        find_access(**asked)
    assert str(caught.value) == (
        f"this pod has no service account: {tmp_path}/token does not exist; "
        "set serviceAccountName, and automountServiceAccountToken to true"
    )


def test_a_token_file_is_read_again_every_minute_and_when_the_token_is_refused(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "token"
    path.write_text("1")
    files = Files("us", token=path, monotonic=lambda: now)
    first = files.current()
    path.write_text("2")
    assert files.current() == first
    now += READ_AGAIN_S
    assert files.current() == Credential.bearer("2")
    assert not files.refused(files.current())
    path.write_text("3")
    assert files.refused(Credential.bearer("2"))
    assert files.current() == Credential.bearer("3")
    assert files.refused(Credential.bearer("2"))  # of a thread that comes later


@pytest.mark.parametrize(("text", "said"), [(None, "cannot be read: No such file"), ("", "is empty")])
def test_a_token_file_without_token_is_trouble_that_passes(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Unavailable, match=said):
        Files("us", token=path).current()


# -- programs that hand out credentials ----------------------------------------------------------------------------


def plugin(folder: Path, script: str, **entry: Any) -> Access:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    described = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", **entry}
    return found(config(folder / "k", user={"exec": described}))


def printed(**status: str) -> str:
    document = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(document)}\nEND"


def test_a_program_is_asked_once_and_again_when_its_token_ends_or_is_refused(tmp_path: Path) -> None:
    counted = "echo x >> runs\nn=$(wc -l < runs)\n"
    moment = {"long": "2999-01-01T00:00:00Z", "over": "2001-01-01T00:00:00Z"}
    answer = printed(token="t$n", expirationTimestamp=moment["long"]).replace("'END'", "END")
    credentials = plugin(tmp_path, f"cd {tmp_path}\n{counted}{answer}").credentials
    assert [credentials.current(), credentials.current()] == [Credential.bearer("t1")] * 2
    assert credentials.refused(Credential.bearer("t1"))
    assert credentials.current() == Credential.bearer("t2")
    answer = answer.replace(moment["long"], moment["over"])
    credentials = plugin(tmp_path, f"cd {tmp_path}\n{counted}{answer}").credentials
    assert [credentials.current(), credentials.current()] == [Credential.bearer("t3"), Credential.bearer("t4")]


def test_a_program_is_told_what_it_needs_and_may_hand_out_a_certificate(tmp_path: Path) -> None:
    script = f'printf %s "$KUBERNETES_EXEC_INFO $WHO $1" > {tmp_path}/said\n'
    access = plugin(
        tmp_path,
        script + printed(clientCertificateData="chain", clientKeyData="key"),
        args=["get"],
        env=[{"name": "WHO", "value": "eva"}],
        provideClusterInfo=True,
    )
    assert access.credentials.current() == Credential((), ClientCertificate(b"chain", b"key"))
    info, who, word = (tmp_path / "said").read_text().rsplit(" ", 2)
    assert (who, word, json.loads(info)) == (
        "eva",
        "get",
        {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "https://10.0.0.1:6443/"}},
        },
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'session expired, run: cloud login' >&2; exit 3", "session expired, run: cloud login; log in again"),
        ("echo hello", "it must print an ExecCredential of client.authentication.k8s.io/v1, but printed b'hello"),
        (printed(), "printed neither token nor certificate"),
    ],
)
def test_a_program_that_fails_is_quoted(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(Unavailable) as caught:
        plugin(tmp_path, script).credentials.current()
    assert said in str(caught.value)


def test_a_program_that_is_not_there_comes_with_its_vendors_hint(tmp_path: Path) -> None:
    access = plugin(tmp_path, "", command="no-such-login", installHint="See https://cloud.example/login")
    with pytest.raises(Unavailable) as caught:
        access.credentials.current()
    assert str(caught.value) == (
        f"getting a credential for user 'u' of {tmp_path}/k with `no-such-login`: No such file or directory; "
        "install it. See https://cloud.example/login"
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "update the program"),
        ({"command": ""}, "names no command"),
        ({"interactiveMode": "Always"}, "wants a terminal"),
    ],
)
def test_a_program_we_cannot_use_is_refused(tmp_path: Path, entry: dict[str, Any], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        plugin(tmp_path, "", **entry)


# -- what is wrong, and what to do ---------------------------------------------------------------------------------


def test_no_kubeconfig_at_all(tmp_path: Path) -> None:
    todo = "name one with --kubeconfig FILE or KUBECONFIG, or run in a pod with a service account"
    assert refusal(None, HOME=str(tmp_path)) == (
        f"there is no kubeconfig: {tmp_path}/.kube/config does not exist; {todo}"
    )
    assert refusal(tmp_path / "k") == f"there is no kubeconfig {tmp_path}/k; {todo}"
    assert refusal(None, KUBECONFIG="/a:/b") == f"KUBECONFIG names /a, /b, which does not exist; {todo}"


def test_no_such_context(tmp_path: Path) -> None:
    path = write(tmp_path / "k", contexts=[{**CONTEXT, "name": name} for name in ("prod", "test")])
    assert refusal(path) == f"{path} has no current-context; choose one with --context (there are: prod, test)"
    assert refusal(path, "prd") == (
        f"there is no context 'prd' in {path} (there are: prod, test); did you mean 'prod'?"
    )


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"users": [USER]}, "wants cluster 'c', which is not there (there are: none)"),
        ({"clusters": [CLUSTER]}, "wants user 'u', which is not there (there are: none)"),
        ({"clusters": [{"name": "c"}]}, "names no server; add `server: https://HOST:6443` to it"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "10.0.0.1"}}]},
            "must look like https://HOST:6443, but is '10.0.0.1'",
        ),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://h:six"}}]}, "must look like https://HOST:6443"),
        ({"clusters": ["c"]}, "must be a list of `name` and `cluster`, but has 'c'"),
    ],
)
def test_a_kubeconfig_that_does_not_hang_together(tmp_path: Path, parts: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "k", contexts=[CONTEXT], current_context="x", **parts)
    assert said in refusal(path)


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"proxy-url": "http://p"}, None, "has proxy-url, which Swell does not use"),
        ({"certificate-authority": "ca"}, None, "ca, which cannot be read: No such file or directory"),
        ({"certificate-authority-data": "%"}, None, "certificate-authority-data of cluster 'c'"),
        ({}, {"auth-provider": {"name": "gcp"}}, "has auth-provider, which Swell does not use"),
        ({}, {"client-certificate-data": "YQ=="}, "has client-certificate and no client-key"),
        ({}, {"token": 7}, "token of user 'u' of"),
    ],
)
def test_a_kubeconfig_with_something_we_cannot_use(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, said: str
) -> None:
    assert said in refusal(config(tmp_path / "k", cluster, user))


@pytest.mark.parametrize(("text", "said"), [("a: [", "is no YAML"), ("[]", "is no kubeconfig"), ("", "no current-")])
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "k").write_text(text)
    assert said in refusal(tmp_path / "k")


def test_certificates_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    access = Access("https://h", "default", Files("us", token=tmp_path), "context 'x' of f", authority=b"nothing")
    with pytest.raises(Rejected, match="the certificate authority of context 'x' of f is no PEM certificate"):
        access.tls(None)
    access = Access("https://h", "default", Files("us", token=tmp_path), "context 'x' of f")
    with pytest.raises(Rejected, match="the client certificate and key of context 'x' of f are no pair in PEM"):
        access.tls(ClientCertificate(b"no", b"no"))


def test_a_credential_knows_when_it_ends() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1700000000}).encode()).decode().rstrip("=")
    end = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    assert [
        Credential.bearer(f"e30.{claims}.s").end(),
        Credential.bearer("opaque").end(),
        Credential.bearer("a.b.c").end(),
        Credential((), ClientCertificate(b"no", b"no")).end(),
    ] == [end, None, None, None]
