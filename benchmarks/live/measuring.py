"""Runs a measurement in a process with the settings of the control plane that is measured."""

import json
from argparse import Namespace
from typing import Any, Final, Self

import msgspec

from benchmarks.live.cluster import BenchCluster
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.processes import run_command

SECONDS: Final = {
    "chaos": 180.0,
    "decisions": 5.0,
    "fleet": 180.0,
    "fuzz": 20.0,
    "hostile": 6.0,
    "jobs": 30.0,
    "viewers": 120.0,
}
"""How long each benchmark of a running control plane measures by default."""

WORKERS: Final = 100
STARTUP_S: Final = 900.0
"""How long starting, ``--beyond`` and counting rows may take on top."""


class Target(msgspec.Struct, kw_only=True, frozen=True):
    """A running control plane and how to measure it; travels on a command line."""

    websockets: str
    """The address of its websockets."""
    more_websockets: list[str] = []
    """Those of further web processes."""
    processes: dict[str, int]
    """Process ids of its services."""
    echo: str = ""
    """The address of an echo server beside it."""
    echo_process: int = 0
    seconds: float
    workers: int = WORKERS
    jobs: int = 0
    """How many; 0: the benchmark's default."""
    machines: int = 0
    """How many; 0: as few as have all slots."""
    hz: float = 1.0
    """Reports of each worker per second."""
    relayed: bool = False
    """Whether the processes of a machine share one connection."""
    beyond: bool = False
    slope: bool = False
    tab_s: float = 0.0
    """How long a page is watched."""

    def encode(self) -> str:
        """As text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """From what ``encode`` gave."""
        return msgspec.json.decode(text, type=cls)


def seconds_of(options: Namespace) -> float:
    """How long to measure."""
    chosen = options.minutes * 60 if options.minutes else options.seconds
    return float(chosen or SECONDS[options.name])


def measure_apart(
    cluster: BenchCluster, options: Namespace, *, echo: tuple[str, int] = ("", 0), tab_s: float = 0.0
) -> dict[str, Any]:
    """What ``measure`` of the benchmark finds, in a process with the settings of the cluster."""
    target = Target(
        websockets=cluster.websockets,
        more_websockets=cluster.more_websockets,
        processes=cluster.processes,
        echo=echo[0],
        echo_process=echo[1],
        seconds=seconds_of(options),
        workers=options.workers or WORKERS,
        jobs=options.jobs,
        machines=options.machines,
        hz=options.hz,
        relayed=options.relay,
        beyond=options.beyond,
        slope=options.slope,
        tab_s=tab_s,
    )
    found = run_command(
        "the measurement",
        [*MANAGE, "bench", options.name, "--within", target.encode()],
        environment=cluster.environment,
        folder=CHECKOUT,
        seconds=4 * target.seconds + tab_s + STARTUP_S,
    )
    document: dict[str, Any] = json.loads(found)
    return document
