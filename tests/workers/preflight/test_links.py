"""The two ends of a link of a test, over loopback with real sockets and TLS."""

import re
import threading
import time
from typing import Any

import pytest
from msgspec import structs

from controlplane.protocol.keys import data_key, instance_name, process_key
from controlplane.protocol.machine_tests import (
    COMPUTE_S,
    GPUS_S,
    LINK_BYTES,
    LINKS_S,
    MEMORY_S,
    TEST_LIMIT_S,
    FarEnd,
    ListenOrder,
    MachineTestOrder,
)
from controlplane.protocol.orders import ServerAddress
from controlplane.runtime.certificates import authority_of, certificate_of
from workers.preflight import links
from workers.preflight.links import Echo, measure
from workers.setup import Setup
from workers.transport.errors import ConnectionClosed

KEY, OTHER = b"k" * 32, b"o" * 32
SETUP = Setup(url="http://127.0.0.1:1")
TESTED, FAR = (instance_name(KEY, title, 0, 1) for title in ("w0", "s0"))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "LINK_S", 0.05)


def listen_order(key: bytes = KEY) -> ListenOrder:
    own = process_key(key, "server", 0, FAR)
    proven = {"certificate": certificate_of(key, own, "server", FAR), "authority": authority_of(key)}
    return ListenOrder(test=1, index=0, instance=FAR, key=own.hex(), **proven)


def order(port: int, key: bytes = KEY) -> MachineTestOrder:
    own, shared = process_key(key, "worker", 0, TESTED), data_key(process_key(key, "server", 0, FAR), 0, TESTED)
    address = ServerAddress(index=0, instance=FAR, host="127.0.0.1", port=port, key=shared)
    proven: dict[str, Any] = {"certificate": certificate_of(key, own, "worker", TESTED), "authority": authority_of(key)}
    return MachineTestOrder(
        test=1, instance=TESTED, key=own.hex(), far_ends=[FarEnd(machine="far", address=address)], **proven
    )


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_link_is_measured_with_and_without_encryption(encrypt: bool) -> None:
    echo = Echo(listen_order(), Setup(url=SETUP.url, encrypt=encrypt))
    [found] = measure(order(echo.port), SETUP)
    echo.wait(10.0)
    echo.close()
    assert (found.machine, found.failure) == ("far", "")
    assert 0 < found.round_trip_s < 1
    assert found.bytes_per_s > 1e5


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_machine_of_another_test_is_refused(encrypt: bool) -> None:
    echo = Echo(listen_order(), Setup(url=SETUP.url, encrypt=encrypt))
    [found] = measure(order(echo.port, OTHER), SETUP)
    echo.close()
    assert found.bytes_per_s == 0
    assert "does not fit" in found.failure or "certificate" in found.failure


def test_an_unreachable_peer_is_named_and_fails_nothing_else() -> None:
    echo = Echo(listen_order(), SETUP)
    echo.close()
    [found] = measure(order(echo.port), SETUP)
    assert found.failure.startswith(f"server 0 at 127.0.0.1:{echo.port} cannot be reached")


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..b"])
def test_a_far_end_whose_host_is_no_name_is_named_and_fails_nothing_else(host: str) -> None:
    asked = order(9)
    far = asked.far_ends[0]
    ends = [structs.replace(far, address=structs.replace(far.address, host=host))]
    [found] = measure(structs.replace(asked, far_ends=ends), SETUP)
    assert found.failure.startswith(f"server 0 at {host}:9 cannot be reached")


def test_a_link_that_stalls_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "PATIENCE_S", 0.2)
    monkeypatch.setattr(links, "LINK_S", 60.0)
    monkeypatch.setattr(links, "MOST_LINK_BYTES", 2**50)
    echo = Echo(listen_order(), SETUP)
    [found] = measure(order(echo.port), SETUP)
    echo.close()
    assert found.failure == "it was not measured within 0.2 s"


def test_a_fast_link_ends_with_its_bytes_and_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_LINK_BYTES", 3 * LINK_BYTES)
    monkeypatch.setattr(links, "LINK_S", 60.0)
    sent: list[int] = []
    timed = links._timed

    def counted(connection: Any, payload: bytes) -> float:
        sent.append(len(payload))
        return timed(connection, payload)

    monkeypatch.setattr(links, "_timed", counted)
    echo = Echo(listen_order(), SETUP)
    [found] = measure(order(echo.port), SETUP)
    echo.close()
    assert found.failure == ""
    assert sum(sent) == 3 * LINK_BYTES + links.ROUND_TRIPS * len(links.SMALL)


def test_a_far_end_takes_no_more_bytes_than_a_test_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MOST_LINK_BYTES", 2 * LINK_BYTES)
    echo = Echo(listen_order(), SETUP)
    monkeypatch.setattr(links, "MOST_LINK_BYTES", 10 * LINK_BYTES)
    monkeypatch.setattr(links, "LINK_S", 60.0)
    [found] = measure(order(echo.port), SETUP)
    echo.wait(10.0)
    echo.close()
    assert found.bytes_per_s == 0
    assert re.search("ended the connection|peer gone", found.failure)


def test_all_links_together_have_a_bounded_time_and_those_without_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "LINKS_S", 0.5)
    monkeypatch.setattr(links, "LINK_S", 60.0)
    monkeypatch.setattr(links, "MOST_LINK_BYTES", 2**50)
    echo = Echo(listen_order(), SETUP)
    [far] = order(echo.port).far_ends
    ends = [structs.replace(far, machine=name) for name in ("near", "far", "farthest")]
    begin_s = time.monotonic()
    found = measure(structs.replace(order(echo.port), far_ends=ends), SETUP)
    took_s = time.monotonic() - begin_s
    echo.close()
    assert took_s < 5.0
    assert [each.machine for each in found] == ["near", "far", "farthest"]
    assert found[0].failure.startswith("it was not measured")
    assert {each.failure for each in found[1:]} == {"it was not measured: all links together have 0.5 s"}


def test_a_host_whose_name_is_looked_up_for_ever_takes_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(links, "LINKS_S", 0.2)

    def look_up(*given: Any, **more: Any) -> None:
        over.wait(60.0)
        raise ConnectionClosed("no such host")

    monkeypatch.setattr(links, "ServerConnection", look_up)
    try:
        [found] = measure(order(9), SETUP)
    finally:
        over.set()
    assert found.failure == "it was not measured: all links together have 0.2 s"


def test_an_error_that_no_one_expects_is_the_result_of_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> None:
        raise KeyError("port")

    monkeypatch.setattr(links, "ServerConnection", broken)
    [found] = measure(order(9), SETUP)
    assert found.failure == "KeyError: 'port'"


def test_what_a_test_is_made_of_ends_before_its_agent_ends_it() -> None:
    both = COMPUTE_S + MEMORY_S
    assert LINKS_S + GPUS_S + both < TEST_LIMIT_S - 15.0, "the rest is for torch to be loaded, and for first rounds"


def test_the_far_end_does_nothing_but_send_back() -> None:
    from workers.transport.client import ServerConnection
    from workers.transport.errors import Interrupted
    from workers.transport.handshake import Peer

    echo = Echo(listen_order(), SETUP)
    address = order(echo.port).far_ends[0].address
    connection = ServerConnection(address, Peer(0, TESTED))
    with pytest.raises(Interrupted):
        connection.send_norms(b"x")
    connection.close()
    echo.wait(10.0)
    echo.close()


def test_orders_show_no_key_in_logs() -> None:
    shown = repr(order(1)) + repr(listen_order()) + repr(order(1).far_ends[0])
    assert order(1).key not in shown
    assert listen_order().key not in shown
    assert "key" not in shown
