"""The connection to a Ray cluster, and the resources of its nodes."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import ray

from paceline.cli.errors import NOT_REACHED, Refusal
from paceline.on_ray.plan import NAMESPACE, SHORT, written

CONNECT_S: Final = 5.0


@contextmanager
def connected(address: str | None) -> Iterator[str]:
    """Connect to the cluster at the address, by default ``RAY_ADDRESS`` or this machine; return its address.

    Raises:
        Refusal: if there is none, or the address is not one of a cluster.
    """
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    _check(where, "--address" if address else "RAY_ADDRESS")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise Ray prints advice to set it
    try:
        ray.init(where, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
        raise _not_there(where, " ".join(str(error).split())) from None
    try:
        yield where
    finally:
        with suppress(Exception):
            ray.shutdown()


def nodes() -> list[str]:
    """Each live node with its total and free resources, for display."""
    free = ray._private.state.available_resources_per_node()
    return [
        f"node {node['NodeID'][:SHORT]} ({node['NodeManagerAddress']}): {written(node['Resources'])}; "
        f"free: {written(free.get(node['NodeID'], {}))}"
        for node in ray.nodes()
        if node["Alive"]
    ]


def _check(where: str, source: str) -> None:
    """Check the address first: Ray itself waits for a minute if nothing listens there."""
    host, colon, port = where.rpartition(":")
    expected = "expected HOST:PORT of a Ray cluster's head, ray://HOST:10001, or auto"
    if where.lower().startswith(("http://", "https://")):
        raise Refusal(
            f"{source} {where!r}: found the address at which Ray accepts jobs, {expected}; give one of these with "
            f"--address, and submit jobs with `ray job submit --address {where}`"
        )
    if where == "auto" or ("://" in where and not where.startswith("ray://")):
        return
    host = host.removeprefix("ray://")
    if not (colon and host and port.isdecimal()):
        raise Refusal(f"{source} {where!r}: {expected}")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _not_there(where, str(error)) from None


def _not_there(where: str, why: str) -> Refusal:
    place = "on this machine" if where == "auto" else f"at {where}"
    return Refusal(
        f"paceline ray: found no Ray cluster {place} ({why[:300]}), expected one that runs; start one with "
        "`ray start --head`, or name it with --address or RAY_ADDRESS (from a machine that is not one of its nodes: "
        "ray://HOST:10001)",
        NOT_REACHED,
    )
