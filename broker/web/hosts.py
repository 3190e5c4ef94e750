"""Hosts that a request may be for: a browser says with it which site it means, and a site of any name can point to us.

Without this check a web page could have its name resolved to our address (DNS rebinding), and then read and change what
is here as if it were its own.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Protocol

from pqbroker.broker.web.routing.health import PATHS
from pqbroker.broker.web.routing.node import WebNode
from pqbroker.broker.web.routing.problems import bad_request, foreign_origin, unknown_host, unknown_origin

_SHOWN = 100
"""Characters of a wrong host that a refusal shows."""
_SAFE = frozenset(("GET", "HEAD"))


class _Headers(Protocol):
    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]: ...


class Hosts:
    """The names of this node: those set, and `own`, the host that it listens on."""

    def __init__(self, own: str, node: WebNode) -> None:
        self._own = own.casefold()
        self._node = node

    def check(self, method: str, path: str, headers: _Headers) -> None:
        """Problem for another host, for a page of another site, and for a change that a page of another port asks for.

        /health and /ready are open under every name: they say nothing that matters, and a supervisor must not stop for
        a name.
        """
        hosts = headers.getall("Host", ())
        if len(hosts) > 1:
            raise bad_request("the request has several Host headers")
        if path not in PATHS and hosts and not self._is_ours(hosts[0]):
            raise unknown_host(hosts[0][:_SHOWN])
        for origin in headers.getall("Origin", ()):
            site = origin.partition("://")[2]
            if not self._is_ours(site):
                raise unknown_origin(origin[:_SHOWN])
            if method not in _SAFE and (not hosts or site != hosts[0]):
                raise foreign_origin(origin[:_SHOWN])

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        settings = self._node.settings
        advertised = settings.advertised_http.rpartition("//")[2]
        if name in ("localhost", self._own) or name in map(str.casefold, settings.http_hosts):
            return True
        if advertised and name == _name(advertised):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".").casefold()
