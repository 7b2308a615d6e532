"""The life of one parameter server process: listen, say so, follow orders, report, end when asked to."""

from functools import partial

import torch

from controlplane.protocol import keys
from controlplane.protocol.messages import ServerHello, ServerReport
from controlplane.protocol.orders import ProcessOrder, ServerOrders
from workers.link import ServerLink
from workers.server.listener import Listener
from workers.server.meter import Meter
from workers.server.store import Store
from workers.workloads.catalogue import load_workload
from workers.workloads.shape import tensor_sizes

REPORT_S = 1.0


def serve(order: ProcessOrder, link: ServerLink, *, host: str, report_s: float = REPORT_S) -> None:
    """Serve blocks on a free port of ``host`` until ``link.stopping``.

    Raises:
        SpecError: if the job names a workload or optimiser that does not exist here.
        ValueError: if orders came that cannot be followed.
    """
    workload = load_workload(order.spec.workload)
    # torch takes a second to import what its first optimiser needs: before the hello, not within an iteration.
    workload.rule(torch.zeros(1), order.spec.optimizer)
    make_rule = partial(workload.rule, optimizer=order.spec.optimizer)
    store, meter = Store(partial(workload.init, order.spec.seed), make_rule), Meter()
    failure = _Failure()
    listener = Listener(host, store, meter, partial(keys.data_key, bytes.fromhex(order.key)), failure.note)
    try:
        sizes = tensor_sizes(workload)
        link.say(lambda number: ServerHello(number=number, host=host, port=listener.port, tensor_sizes=sizes))
        link.on_orders(partial(_follow, store, failure))
        while not link.stopping.wait(report_s):
            failure.check()
            _report(link, store, meter)
    finally:
        store.stop()
        listener.close()


class _Failure:
    """What went wrong on any thread, for the server's own: it ends the process, which everybody notices."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def note(self, error: Exception) -> None:
        self._error = self._error or error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _follow(store: Store, failure: _Failure, orders: ServerOrders) -> None:
    try:
        store.take(orders)
    except Exception as error:
        failure.note(error)


def _report(link: ServerLink, store: Store, meter: Meter) -> None:
    iteration, reading, missing = store.version, meter.take(), store.take_missing()
    link.say(
        lambda number: ServerReport(
            number=number,
            iteration=iteration,
            bytes_in=reading.bytes_in,
            bytes_out=reading.bytes_out,
            busy_s=reading.busy_s,
            missing=missing,
        )
    )
