"""The entry point of a worker or server process: from its order to its exit status."""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import structlog

from controlplane.protocol.addresses import ControlPlane
from controlplane.protocol.orders import ProcessOrder
from workers.addresses import control_plane
from workers.control.links import ServerControl, WorkerControl
from workers.control.socket import NOT_WANTED, Route
from workers.devices import CPU, claim
from workers.relay.framing import VARIABLE
from workers.relay.process import LocalRoute
from workers.script import become_script
from workers.setup import Setup
from workers.upload import upload_model

log = structlog.get_logger("process")
Link = WorkerControl | ServerControl


def run_process(order: ProcessOrder, setup: Setup) -> int:
    """Run the process of ``order``; return its exit status. A script replaces this process."""
    if order.spec.command is not None or order.script is not None:
        become_script(order, setup)
    import torch

    device = claim(setup.device_of(order.slot), os.environ) if order.role == "worker" else CPU
    torch.set_num_threads(setup.threads)
    structlog.contextvars.bind_contextvars(job=order.job, process=f"{order.role[0]}{order.index}")
    plane = control_plane(setup.url, insecure=setup.insecure)
    if order.role == "worker":
        return run_worker(order, plane, setup, device)
    return run_server(order, plane, setup)


def run_worker(order: ProcessOrder, plane: ControlPlane, setup: Setup, device: str) -> int:
    """Train on ``device`` until orders to stop."""
    from workers.trainer.loop import train
    from workers.workloads.local import local_of

    link = WorkerControl(route_of(order, plane))

    def save_model(arrays: Mapping[str, np.ndarray]) -> None:
        upload_model(plane, order, arrays, stopping=link.stopping)

    return attend(link, lambda: train(order, link, save_model, local_of(setup, device)))


def run_server(order: ProcessOrder, plane: ControlPlane, setup: Setup) -> int:
    """Run a parameter server until it is requested to end."""
    from workers.server.main import serve
    from workers.workloads.local import local_of

    folder = None if setup.checkpoint_dir is None else Path(setup.checkpoint_dir)
    link = ServerControl(route_of(order, plane))

    def work() -> None:
        serve(order, link, host=setup.host, announced=setup.announced, local=local_of(setup), checkpoint_dir=folder)

    return attend(link, work)


def attend(link: Link, work: Callable[[], None]) -> int:
    """Run ``work`` with the link open; return 0 if it completed or was requested to end, else log the reason and return
    1.
    """
    stop_on_signal(link.stopping)
    link.start()
    try:
        work()
        link.drain()
    finally:
        link.close()
    if link.failure is not None:
        raise link.failure
    return 0 if link.ending is None or link.ending.code in NOT_WANTED else 1


def route_of(order: ProcessOrder, plane: ControlPlane) -> Route:
    """Address and identity for the connection of the process of ``order``."""
    relay = os.environ.get(VARIABLE)
    return Route(
        plane=plane,
        path=f"/ws/{order.role}/{order.job}/{order.index}",
        headers={"Authorization": f"Bearer {order.key}", "X-Paceline-Instance": order.instance},
        local=LocalRoute.of(order, Path(relay)) if relay else None,
    )


def stop_on_signal(stopping: threading.Event) -> None:
    """Set ``stopping`` on SIGTERM.

    Setting an event takes its lock, which the interrupted code may hold. Putting into a SimpleQueue is safe in signal
    handlers, so the handler does only that, and a thread sets the event.
    """
    signals: SimpleQueue[int] = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, _: signals.put(number))

    def wait() -> None:
        signals.get()
        log.info("asked to end")
        stopping.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()
