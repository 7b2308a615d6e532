"""The main loop of a parameter server process: listen, announce the address, follow orders, report, end on request."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from controlplane.protocol import RELEASE, keys
from controlplane.protocol.messages import (
    BlocksFilled,
    BlocksHanded,
    FolderApart,
    RestoreFailed,
    ServerHello,
    ServerReport,
)
from controlplane.protocol.optimizers import clips_by_norm
from controlplane.protocol.orders import ProcessOrder, ServerOrders
from workers.checkpoints.files import CheckpointError
from workers.link import ServerLink
from workers.server.checkpointing import Checkpoints
from workers.server.handover import Handed, Handover
from workers.server.listener import Listener
from workers.server.meter import Meter
from workers.server.norms import Norms
from workers.server.store import Store
from workers.transport.channel import Channel
from workers.transport.client import ServerConnection
from workers.transport.encryption import Encryption, Identity
from workers.transport.handshake import Peer
from workers.transport.throttled import through
from workers.workloads.catalogue import begins_with_module, load_workload
from workers.workloads.local import NOWHERE, Local
from workers.workloads.rules import MeanRule
from workers.workloads.shape import Rule, checksum
from workers.workloads.trained import admit_factories, check_clip

REPORT_S = 1.0


def serve(
    order: ProcessOrder,
    link: ServerLink,
    *,
    host: str,
    announced: str | None = None,
    report_s: float = REPORT_S,
    local: Local = NOWHERE,
    checkpoint_dir: Path | None = None,
    reach: Callable[[str], None] = lambda point: None,
) -> None:
    """Serve blocks on a free port of ``host`` until ``link.stopping``; ``announced``: the address for others, if it
    differs.

    ``reach`` is called at each step of a handover.

    Raises:
        SpecError: if the job names an unknown workload or optimizer.
        ValueError: if orders cannot be followed.
        Unencrypted: if this machine encrypts, but the control plane did not issue a certificate.
    """
    admit_factories(order.spec, local)
    workload = load_workload(order.spec.workload, local)
    holds = order.spec.server_mode == "stateful"
    if holds:
        # The first optimizer makes torch import modules for a second: do that before the hello, not within an
        # iteration.
        check_clip(workload.rule(torch.zeros(1), order.spec.applied, start=0), order.spec.applied)

    def make_rule(values: torch.Tensor, start: int) -> Rule:
        return workload.rule(values, order.spec.applied, start=start) if holds else MeanRule(values)

    open_channel = _open_channel(order, link.stopping)
    me = Peer(order.index, order.instance, "server")
    encryption = Encryption(Identity.of(order), encrypts=local.encrypts, allows_plain=local.insecure)
    connect = partial(ServerConnection, peer=me, checked=True, open_channel=open_channel, encryption=encryption)
    hand_over = partial(Handover, connect=connect, say=partial(_say_handed, link), reach=reach)
    init, sizes = partial(workload.init, order.spec.seed), workload.layout.sizes
    checkpoints = Checkpoints(
        order,
        checkpoint_dir,
        elements=sum(sizes),
        init=init,
        say=lambda saved: link.say(saved.message),
        say_apart=partial(_say_apart, link),
    )
    say_filled = partial(_say_filled, link)
    meter = Meter()
    failure = _Failure()
    norms = None
    if holds and clips_by_norm(order.spec.applied):
        norms = partial(Norms, sizes, connect, on_failure=failure.note)
    store = Store(
        init,
        make_rule,
        hand_over=hand_over,
        checkpoints=checkpoints,
        on_filled=say_filled,
        norms=norms,
        elements=sum(sizes),
    )
    listener = Listener(
        host,
        store,
        meter,
        partial(_key_of, order),
        failure.note,
        open_channel=open_channel,
        encryption=encryption,
    )
    makes_alone = order.spec.servers > 1 and holds and begins_with_module(order.spec.workload)
    initial = checksum(init()) if makes_alone else ""
    try:
        found, skipped = checkpoints.found
        link.say(
            lambda number: ServerHello(
                number=number,
                host=announced or host,
                port=listener.port,
                tensor_sizes=sizes,
                found=found,
                skipped=skipped,
                release=RELEASE,
                initial=initial,
            )
        )
        link.on_orders(partial(_follow, link, store, failure))
        while not link.stopping.wait(report_s):
            failure.check()
            _report(link, store, meter)
    finally:
        store.stop()
        listener.close()
        checkpoints.close()


def _key_of(order: ProcessOrder, peer: Peer) -> bytes:
    """The key that this server shares with a worker or with another server."""
    derive = keys.data_key if peer.role == "worker" else keys.peer_key
    return derive(bytes.fromhex(order.key), peer.rank, peer.instance)


def _say_handed(link: ServerLink, handed: Handed) -> None:
    link.say(
        lambda number: BlocksHanded(
            number=number,
            placement=handed.placement,
            blocks=handed.blocks,
            bytes=handed.size,
            seconds=handed.seconds,
            failure=handed.failure,
        )
    )


def _say_filled(link: ServerLink, blocks: list[int]) -> None:
    link.say(lambda number: BlocksFilled(number=number, blocks=blocks))


def _say_apart(link: ServerLink, reason: str) -> None:
    link.say(lambda number: FolderApart(number=number, reason=reason))


def _open_channel(order: ProcessOrder, stopping: threading.Event) -> Callable[[socket.socket], Channel]:
    """Channels for this server: direct, or through its emulated link."""
    links = order.spec.emulate_servers or []
    return through(links[order.index] if order.index < len(links) else None, stopping.wait)


class _Failure:
    """Passes the first error of any thread to the main thread, where it ends the process."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def note(self, error: Exception) -> None:
        self._error = self._error or error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _say_restore_failed(link: ServerLink, orders: ServerOrders, error: CheckpointError) -> None:
    iteration = orders.restore.iteration if orders.restore is not None else 0
    link.say(lambda number: RestoreFailed(number=number, iteration=iteration, reason=str(error)))


def _follow(link: ServerLink, store: Store, failure: _Failure, orders: ServerOrders) -> None:
    try:
        store.take(orders)
    except CheckpointError as error:
        _say_restore_failed(link, orders, error)
    except Exception as error:
        failure.note(error)


def _report(link: ServerLink, store: Store, meter: Meter) -> None:
    generation = store.generation  # read before the versions, which this roster may have completed
    highest = store.highest
    iteration, reading, missing, late = store.version, meter.take(), store.take_missing(), store.take_late()
    link.say(
        lambda number: ServerReport(
            number=number,
            iteration=iteration,
            highest=highest,
            generation=generation,
            bytes_in=reading.bytes_in,
            bytes_out=reading.bytes_out,
            busy_s=reading.busy_s,
            missing=missing,
            late=late,
        )
    )
