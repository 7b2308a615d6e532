"""Which addresses are accepted, and what is said about the others."""

from typing import Any

import pytest

from controlplane.protocol.addresses import AddressError
from workers.addresses import check_bind, control_plane
from workers.setup import Setup


def test_one_address_serves_http_and_websockets() -> None:
    plane = control_plane("http://127.0.0.1:8000/")
    assert plane.url == "http://127.0.0.1:8000"
    assert plane.http("/api/v1/agents/enrol") == "http://127.0.0.1:8000/api/v1/agents/enrol"
    assert plane.socket("/ws/agent") == "ws://127.0.0.1:8000/ws/agent"


def test_an_encrypted_address_keeps_its_prefix() -> None:
    plane = control_plane("https://Train.Example.org/paceline")
    assert plane.socket("/ws/agent") == "wss://train.example.org/paceline/ws/agent"
    assert not plane.loopback


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000", "http://127.9.9.9"]
)
def test_this_machine_needs_no_encryption(url: str) -> None:
    assert control_plane(url).loopback


@pytest.mark.parametrize("url", ["http://10.0.0.5:8000", "ws://train.example.org", "http://127.0.0.1.example.org"])
def test_unencrypted_addresses_elsewhere_are_refused_with_the_cure(url: str) -> None:
    with pytest.raises(AddressError, match=r"give its https:// address, or --insecure"):
        control_plane(url)
    assert control_plane(url, insecure=True).secure is False


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "", "ftp://host", "http://", "http://host:port", "http://[::1"])
def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(AddressError, match=r"http://127\.0\.0\.1:8000"):
        control_plane(url)


@pytest.mark.parametrize(
    "url", ["https://me:secret@host", "https://host?token=1", "https://host#here", "https://me:secret@[::1"]
)
def test_addresses_carry_no_secrets(url: str) -> None:
    with pytest.raises(
        AddressError, match=r"takes no password, query or fragment|^'\[::1' is not an address"
    ) as caught:
        control_plane(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_servers_do_not_listen_on_an_address_that_no_one_can_reach(host: str) -> None:
    with pytest.raises(AddressError, match="give this machine's own"):
        check_bind(host)


@pytest.mark.parametrize(
    ("setup", "protection"),
    [
        ({}, "not encrypted: on this machine alone"),
        ({"encrypt": True}, "TLS 1.3"),
        ({"host": "10.0.0.5"}, "TLS 1.3"),
        ({"announced": "10.0.0.5"}, "TLS 1.3"),
        ({"host": "0.0.0.0", "announced": "10.0.0.5"}, "TLS 1.3"),
        ({"host": "10.0.0.5", "insecure": True}, "not encrypted: --insecure"),
        ({"host": "10.0.0.5", "insecure": True, "encrypt": True}, "TLS 1.3"),
    ],
)
def test_parameters_are_encrypted_beyond_this_machine_unless_the_network_is_private(
    setup: dict[str, Any], protection: str
) -> None:
    found = Setup(url="http://127.0.0.1:8000", **setup)
    assert (found.protection, found.encrypts) == (protection, protection == "TLS 1.3")
