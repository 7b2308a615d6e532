"""Where a request comes from."""

from typing import Any

import pytest
import uvicorn
from django.test import RequestFactory

from controlplane.people.addresses import client_address, network_of
from controlplane.runtime.embedded.control_plane import web_command


@pytest.mark.parametrize(
    ("proxies", "forwarded", "peer", "found"),
    [
        (0, "", "192.0.2.1", "192.0.2.1"),
        (0, "198.51.100.9", "192.0.2.1", "192.0.2.1"),
        (1, "198.51.100.9", "192.0.2.1", "198.51.100.9"),
        (1, "203.0.113.66, 198.51.100.9", "192.0.2.1", "198.51.100.9"),
        (2, "203.0.113.66, 198.51.100.9, 192.0.2.2", "192.0.2.1", "198.51.100.9"),
        (2, "198.51.100.9", "192.0.2.1", "198.51.100.9"),
        (1, "", "192.0.2.1", "192.0.2.1"),
        (1, "nonsense", "192.0.2.1", "192.0.2.1"),
        (0, "", "::ffff:192.0.2.1", "192.0.2.1"),
        (0, "", "unix", ""),
    ],
)
def test_only_trusted_proxies_set_the_address_of_a_client(
    proxies: int, forwarded: str, peer: str, found: str, settings: Any
) -> None:
    settings.TRUSTED_PROXIES = proxies
    request = RequestFactory().get("/", REMOTE_ADDR=peer, HTTP_X_FORWARDED_FOR=forwarded)
    assert client_address(request) == found


@pytest.mark.parametrize(
    ("address", "network"),
    [("192.0.2.1", "192.0.2.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("", "")],
)
def test_one_host_is_one_network(address: str, network: str) -> None:
    assert network_of(address) == network


def test_uvicorn_leaves_the_address_of_a_request_as_it_is() -> None:
    """By itself it believes X-Forwarded-For of any client on this machine: a throttle would count nothing."""
    options = web_command("127.0.0.1", 8000)[3:]
    assert uvicorn.main.make_context("uvicorn", options).params["proxy_headers"] is False
