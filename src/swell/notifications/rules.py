"""May this server send there, or run that, for its users?

A server stands where its users may not: on Kubernetes in a pod with rights over the cluster, on a box as root. Whoever
could make it send a request anywhere would stand there, too. So it sends only to addresses that were asked about here:

    the text    `refuse`, at submission and again before it is sent: the scheme, host, port and path that an operator
                listed, where there is a list
    the IP      `may_reach`, after the name was resolved, of the one IP address that is connected to: public ones,
                and what an operator listed

A name that is listed does not open a private network: whoever answers for the name would decide which. An IP address
does.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from swell.config import NoticeSettings
from swell.errors import Rejected
from swell.model.job import Notify
from swell.model.webaddress import AddressPattern, BadAddress, IpAddress, WebAddress

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

UNICAST_V6 = ipaddress.IPv6Network("2000::/3")  # nothing else of version 6 is on the internet
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # addresses of version 4, as networks of version 6 alone reach them
CLOUD_HOST = ipaddress.IPv4Address("168.63.129.16")  # Azure's own, beside every machine there, and looks public
SHOWN_MAX = 5  # of an operator's list, in a refusal


@dataclass(frozen=True, slots=True)
class NotificationRules:
    runs_programs: bool  #: commands, and sendmail
    reaches_own_network: bool  #: loopback and private networks, without being listed
    addresses: tuple[AddressPattern, ...] | None  #: None: all of them
    networks: tuple[IpNetwork, ...]  #: beside public ones

    def refuse(self, notify: Notify) -> None:
        """What this server will never do, whatever the name of a host turns out to mean."""
        if not notify.is_address:
            self._refuse_program(notify)
            return
        try:
            address = WebAddress.parse(notify.to[0])
        except BadAddress as problem:
            raise Rejected(f"notify: the address cannot be used: {problem}") from None
        self._refuse_unlisted(address)
        if address.ip is not None:
            self.refuse_ip(address, address.ip)

    def _refuse_program(self, notify: Notify) -> None:
        if self.runs_programs:
            return
        what = "an e-mail" if notify.is_mail else f"the command {notify.to[0][:100]!r}"
        raise Rejected(
            f"notify asks for {what}, but a server on Kubernetes does not run users' programs, because they "
            f"would have the server's rights in the cluster; name an http(s) address instead. {self._told_to()}"
        )

    def _refuse_unlisted(self, address: WebAddress) -> None:
        if self.addresses is not None and not any(pattern.names(address) for pattern in self.addresses):
            raise Rejected(
                f"notify: {address.origin} is not an address that this server may send to. {self._told_to()}"
            )

    def _told_to(self) -> str:
        if not self.addresses:
            return "The operator has allowed no addresses yet (notices in config.json)"
        shown = [str(pattern) for pattern in self.addresses[:SHOWN_MAX]]
        more = ["…"] if len(self.addresses) > SHOWN_MAX else []
        return f"It sends to what is below {', '.join([*shown, *more])}; its operator lists them"

    def refuse_ip(self, address: WebAddress, ip: IpAddress) -> None:
        if not self.may_reach(ip):
            raise Rejected(
                f"notify: {address.origin} resolves to {ip}, and this server sends no notices to such networks "
                "(loopback, private or cloud metadata); the operator can allow it under notices.networks in config.json"
            )

    def may_reach(self, ip: IpAddress) -> bool:
        meant = _meant(ip)
        if self.is_listed(ip):
            return True
        if self.reaches_own_network:
            return meant.is_loopback or not _is_nobodys(meant)
        return _is_public(meant)

    def is_listed(self, ip: IpAddress) -> bool:
        """Among the networks; as it was written, or as the address of version 4 that it stands for."""
        return any(one in network for one in (ip, _meant(ip)) for network in self.networks)

    def may_reach_itself(self, ip: IpAddress) -> bool:
        """The machine the server is on, under an IP address that looks like any other."""
        return self.reaches_own_network or self.is_listed(ip)


def rules_for(settings: NoticeSettings, *, on_box: bool, on_cluster: bool) -> NotificationRules:
    """A private server does what its one user could do; a box's root does not lend its place in the network."""
    listed = settings.addresses
    listed_ips = [pattern.below.ip for pattern in listed or ()]
    named = tuple(ipaddress.ip_network(ip) for ip in listed_ips if ip is not None)
    return NotificationRules(
        runs_programs=not on_cluster,
        reaches_own_network=not on_cluster and not on_box,
        addresses=() if on_cluster and listed is None else listed,
        networks=(*settings.networks, *named),
    )


def _meant(ip: IpAddress) -> IpAddress:
    """The address of version 4 inside one of version 6, where that is only another way to write it."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip in NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip


def _is_nobodys(meant: IpAddress) -> bool:
    """No other machine is meant by it, or a cloud's own services are, which hand out the machine's credentials."""
    is_nowhere = meant.is_multicast or meant.is_unspecified or meant.is_reserved
    return is_nowhere or meant.is_link_local or meant == CLOUD_HOST


def _is_public(meant: IpAddress) -> bool:
    if isinstance(meant, ipaddress.IPv6Address) and meant not in UNICAST_V6:
        return False
    return meant.is_global and not _is_nobodys(meant)
