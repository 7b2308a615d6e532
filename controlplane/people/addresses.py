"""The client address of a request, behind the configured number of proxies."""

import ipaddress

from django.conf import settings
from django.http import HttpRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_address(request: HttpRequest) -> str:
    """The address of the client; empty if it has none, such as on a Unix socket.

    Each trusted proxy appends the address that it was connected from to ``X-Forwarded-For``; everything before
    those entries was written by the client, and is ignored.
    """
    peer = request.META.get("REMOTE_ADDR", "")
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if settings.TRUSTED_PROXIES else []
    hops = [*filter(None, map(str.strip, forwarded)), peer]
    found = _parsed(hops[-min(settings.TRUSTED_PROXIES + 1, len(hops))]) or _parsed(peer)
    return str(found or "")


def network_of(address: str) -> str:
    """The unit of throttling: an IPv4 address, or the /64 of an IPv6 address, since one host can use all of it."""
    found = _parsed(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found or "")


def _parsed(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found
