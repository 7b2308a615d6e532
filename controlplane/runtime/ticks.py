"""Notifies pages after a commit that data they show has changed."""

import time
from collections.abc import Mapping

import msgspec

from controlplane.protocol.pages import Tick
from controlplane.runtime import names
from controlplane.runtime.redis import Client


def publish(client: Client, *, jobs: Mapping[int, str] | None = None, fleet: bool = False, alerts: bool = False) -> int:
    """Publish one tick; returns the number of gateways that received it."""
    sequence = int(client.incr(names.PAGES_SEQUENCE))
    at_ms = int(time.time() * 1000)
    tick = Tick(seq=sequence, at_ms=at_ms, jobs=dict(jobs or {}), fleet=fleet, alerts=alerts)
    return int(client.publish(names.PAGES, msgspec.json.encode(tick)))
