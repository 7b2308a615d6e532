"""Creates the orders of machine tests, with the credentials of both sides, and ends lost tests."""

from datetime import datetime

from django.utils.crypto import salted_hmac

from controlplane.fleet.machine_tests import (
    preflight_began,
    preflights_overdue,
    preflights_to_begin,
    preflights_to_listen_for,
)
from controlplane.fleet.models import MachineTest
from controlplane.protocol.keys import data_key, instance_name, process_key
from controlplane.protocol.machine_tests import FarEnd, ListenOrder, MachineTestOrder, PreflightOrder
from controlplane.protocol.orders import ServerAddress
from controlplane.runtime import names, ticks
from controlplane.runtime.certificates import authority_of, certificate_of
from controlplane.runtime.redis import Client, shared

TESTED = 0
"""Rank of the tested machine in handshakes."""


def orders_due(agent_id: int) -> list[PreflightOrder]:
    """Orders to send to the agent now; the order to begin its own test is sent once."""
    listens: list[PreflightOrder] = [_listen_order(row, index) for row, index in preflights_to_listen_for(agent_id)]
    return listens + [_order(row) for row in preflights_to_begin(agent_id) if preflight_began(row.pk)]


def notify(client: Client, test: MachineTest) -> None:
    """Notify the gateways of all participating agents to look for orders."""
    for agent in {test.agent_id, *(each["agent"] for each in test.far_ends)}:
        client.publish(names.agent_test(agent), b"")


def end_overdue(now: datetime) -> None:
    """End lost tests, and start tests whose peers timed out."""
    ended, waiting = preflights_overdue(now)
    for row in waiting:
        shared().publish(names.agent_test(row.agent_id), b"")
    if ended:
        ticks.publish(shared(), fleet=True)


def key_of(test: MachineTest) -> bytes:
    """The test's own key, which is stored nowhere: 32 bytes."""
    return salted_hmac("paceline.machine-test", f"{test.pk}:{test.nonce}", algorithm="sha256").digest()


def _listen_order(test: MachineTest, index: int) -> ListenOrder:
    key = key_of(test)
    instance, own = _server(key, index)
    return ListenOrder(
        test=test.pk,
        index=index,
        instance=instance,
        key=own.hex(),
        certificate=certificate_of(key, own, "server", instance),
        authority=authority_of(key),
    )


def _order(test: MachineTest) -> MachineTestOrder:
    key = key_of(test)
    instance = instance_name(key, "w0", 0, 1)
    own = process_key(key, "worker", TESTED, instance)
    found = [(index, each) for index, each in enumerate(test.far_ends) if each["port"] is not None]
    return MachineTestOrder(
        test=test.pk,
        instance=instance,
        key=own.hex(),
        certificate=certificate_of(key, own, "worker", instance),
        authority=authority_of(key),
        far_ends=[_far_end(key, index, each, instance) for index, each in found],
    )


def _far_end(key: bytes, index: int, found: dict[str, object], tested: str) -> FarEnd:
    instance, own = _server(key, index)
    address = ServerAddress(
        index=index,
        instance=instance,
        host=str(found["host"]),
        port=int(str(found["port"])),
        key=data_key(own, TESTED, tested),
    )
    return FarEnd(machine=str(found["name"]), address=address)


def _server(key: bytes, index: int) -> tuple[str, bytes]:
    """The instance name and key of a far end."""
    instance = instance_name(key, f"s{index}", 0, 1)
    return instance, process_key(key, "server", index, instance)
