"""May this server send there, or run that, for its users?"""

from __future__ import annotations

import ipaddress

import pytest

from swell.config import parse_config
from swell.errors import Rejected
from swell.model.job import Notify
from swell.notifications import NotificationRules, rules_for


def rules(kind: str, **settings: object) -> NotificationRules:
    config = parse_config({"notices": settings})
    return rules_for(config.notices, on_box=kind == "box", on_cluster=kind == "cluster")


def refusal(of: NotificationRules, *to: str) -> str:
    """Empty: it is none."""
    try:
        of.refuse(Notify(to))
    except Rejected as problem:
        return str(problem)
    return ""


PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
OWN = [
    "127.0.0.1",
    "127.8.8.8",
    "::1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fd00::1",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:10.1.2.3",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
]
NEVER = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "fe80::1",
    "fe80::1%2",
    "168.63.129.16",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "239.1.2.3",
    "255.255.255.255",
    "240.0.0.1",
    "ff02::1",
]


@pytest.mark.parametrize("kind", ["private", "box", "cluster"])
def test_which_ip_addresses_a_server_may_reach(kind):
    """A private server may talk to its own machine and network, as its user may; the others to the public only."""
    of = rules(kind)
    told = {ip for ip in PUBLIC + OWN + NEVER if of.may_reach(ipaddress.ip_address(ip))}
    assert told == {*PUBLIC, *(OWN if kind == "private" else [])}


@pytest.mark.parametrize("kind", ["private", "box", "cluster"])
@pytest.mark.parametrize("ip", OWN + NEVER)
def test_what_an_operator_lists_by_ip_address_is_reached(kind, ip):
    plain = ip.partition("%")[0]
    assert rules(kind, networks=[plain]).may_reach(ipaddress.ip_address(ip))


def test_a_network_is_listed_by_its_plain_ip_addresses_however_they_are_written():
    of = rules("box", networks=["10.20.0.0/16"])
    reached = [of.may_reach(ipaddress.ip_address(text)) for text in ("10.20.3.4", "::ffff:10.20.3.4", "10.21.0.1")]
    assert reached == [True, True, False]


def test_what_a_cluster_does_without_settings_is_nothing():
    of = rules("cluster")
    nowhere = "The operator has allowed no addresses yet (notices in config.json)"
    why = (
        "but a server on Kubernetes does not run users' programs, because they would have the server's rights in the "
        "cluster"
    )
    do = "name an http(s) address instead."
    assert refusal(of, "sh", "-c", "id") == f"notify asks for the command 'sh', {why}; {do} {nowhere}"
    assert refusal(of, "mailto:ann@example.org") == f"notify asks for an e-mail, {why}; {do} {nowhere}"
    unlisted = f"notify: https://example.org is not an address that this server may send to. {nowhere}"
    assert refusal(of, "https://example.org/secret") == unlisted


def test_a_list_is_the_whole_of_it_on_every_kind_of_server():
    listed = ["https://hooks.example.org/services/", "https://*.chat.example"]
    for kind in ("private", "box", "cluster"):
        of = rules(kind, addresses=listed)
        assert refusal(of, "https://hooks.example.org/services/T0") == ""
        assert refusal(of, "https://lab.chat.example/x") == ""
        said = (
            "notify: https://example.org is not an address that this server may send to. It sends to what is below "
            "https://hooks.example.org/services/, https://*.chat.example/; its operator lists them"
        )
        assert refusal(of, "https://example.org/services/T0") == said


@pytest.mark.parametrize("kind", ["private", "box"])
def test_without_a_list_a_machine_sends_to_every_name_and_runs_programs(kind):
    of = rules(kind)
    told = [refusal(of, *to) for to in (["https://example.org/"], ["sh", "-c", "id"], ["mailto:ann"])]
    assert told == ["", "", ""]


def test_a_name_that_is_listed_opens_no_private_network_and_an_ip_address_does():
    by_name = rules("cluster", addresses=["http://chat.lab/"])
    by_number = rules("cluster", addresses=["http://10.0.0.7:8065/"])
    ten = ipaddress.ip_address("10.0.0.7")
    assert (by_name.may_reach(ten), by_number.may_reach(ten)) == (False, True)
    assert refusal(by_number, "http://10.0.0.7:8065/hook") == ""


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]", "[fd00:ec2::254]"]
)
def test_an_ip_address_is_refused_at_submission(host):
    said = refusal(rules("box"), f"http://{host}/latest/meta-data")
    assert said.startswith(f"notify: http://{host} resolves to ".replace("[::ffff:127.0.0.1]", "[::ffff:7f00:1]"))
    assert said.endswith("the operator can allow it under notices.networks in config.json")


def test_what_was_stored_before_addresses_were_looked_at_is_looked_at_now():
    said = refusal(rules("private"), "http://a b/")
    assert said.startswith("notify: the address cannot be used: it holds spaces")
