"""What a kubelet asks: is it alive, is it ready? By the pod's address, and without a token."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("token", [None, "wrong"])
@pytest.mark.parametrize("host", [None, "10.244.0.7:8080"])
def test_a_probe_needs_no_token_and_answers_to_any_host(service, path, token, host):
    answer = service.ask("GET", path, prefix="", token=token, host=host)
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_a_server_that_still_reads_what_there_is_is_alive_and_not_ready(service):
    service.is_ready = False
    try:
        found = {path: service.ask("GET", path, prefix="", token=None) for path in ("/healthz", "/readyz")}
    finally:
        service.is_ready = True
    assert {path: (answer.status, answer.json) for path, answer in found.items()} == {
        "/healthz": (200, {"status": "ok"}),
        "/readyz": (503, {"status": "not ready"}),
    }


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_probe_is_not_for_pages_of_other_sites_and_opens_nothing_beside_it(service, path):
    page = {"Origin": "http://evil.example"}
    assert service.ask("GET", path, prefix="", token=None, headers=page).status == 403
    assert service.ask("POST", path, prefix="", token=None).status == 405
    for beside in (f"{path}/", f"{path}/x", f"{path}x", f"/api/v1{path}"):
        assert service.ask("GET", beside, prefix="", token=None, host="10.244.0.7:8080").status == 403
        assert service.ask("GET", beside, prefix="", token=None).status in (401, 404)
