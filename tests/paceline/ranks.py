"""Ranks of a gloo group as processes with a deadline, and a control plane that is a list of orders."""

import faulthandler
import multiprocessing
import os
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from controlplane.protocol.orders import Orders
from paceline.ceilings import Ceiling
from paceline.control import Build, Control
from paceline.identity import Identity
from paceline.pacer import Pacer
from tests.protocol.orders import orders
from tests.support.waiting import MOST, eventually, slowness


def processes_of_ranks() -> Any:
    """Forked ones, which have imported everything; but a fork of a process that has found a GPU cannot train."""
    return multiprocessing.get_context("forkserver" if torch.cuda.is_available() else "fork")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@cache
def import_what_optimizers_need() -> None:
    """The first optimizer of a process imports 200 modules of torch in a second: here, not in every rank."""
    torch.optim.SGD([torch.zeros(1)], lr=1.0)


def run_ranks(function: Callable[..., Any], world: int, *arguments: Any, seconds: float = 60.0) -> list[Any]:
    """What ``function(rank, world, *arguments)`` gives in each process; they are ended when the time is up.

    Their store is kept here: were it rank 0's, the others would lose it in mid-rendezvous where rank 0 is done first.
    It begins once all are forked: a rank forked while the store's thread holds a lock would wait for it for ever.
    """
    import_what_optimizers_need()
    pipes, processes, context = [], [], processes_of_ranks()
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        for rank in range(world):
            here, there = context.Pipe()
            given = (function, rank, world, there, arguments, Path(folder, str(rank)))
            process = context.Process(target=_rank, args=given)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        try:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            for pipe in pipes:
                with suppress(BrokenPipeError):  # it has ended, which is told below
                    pipe.send(store.port)
            results = []
            for rank, pipe in enumerate(pipes):
                late = "" if pipe.poll(seconds * slowness()) else _stacks(processes, Path(folder))
                assert not late, f"rank {rank} gave no result within {seconds} s of an idle machine:\n{late}"
                failed, result = pipe.recv()
                assert not failed, f"rank {rank}: {result}"
                results.append(result)
            return results
        finally:
            for process in processes:
                process.join(1.0)
                if process.is_alive():
                    process.kill()
                    process.join()


def _stacks(processes: Sequence[Any], folder: Path) -> str:
    """Where the ranks are."""
    found = []
    for rank, process in enumerate(processes):
        file = folder / str(rank)
        if process.is_alive() and file.exists():
            os.kill(process.pid, signal.SIGUSR1)
            with suppress(AssertionError):
                eventually(lambda file=file: file.stat().st_size, what="the stack of a rank", seconds=5.0)
            found.append(f"rank {rank}:\n{file.read_text()}")
        else:
            found.append(f"rank {rank}: exit code {process.exitcode}")
    return "\n".join(found)


def _rank(
    function: Callable[..., Any],
    rank: int,
    world: int,
    pipe: Any,
    arguments: tuple[Any, ...],
    stack: Path,
) -> None:
    try:
        faulthandler.register(signal.SIGUSR1, file=stack.open("w"))
        signal.alarm(round(120 * MOST))  # whatever becomes of the test run, none of these stays behind
        torch.set_num_threads(1)
        port = pipe.recv()
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if world > 1:
            store = dist.TCPStore("127.0.0.1", port, is_master=False)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
        pipe.send((False, function(rank, world, *arguments)))
    except BaseException:
        pipe.send((True, traceback.format_exc()))
    finally:
        pipe.close()
        os._exit(0)  # nothing of the test run that was forked is to be torn down here


@dataclass
class Script:
    """A link that hears the orders of a schedule, each before an iteration, and keeps what is said."""

    schedule: Mapping[int, Orders] = field(default_factory=dict)
    pacer: Pacer | None = None
    said: list[Any] = field(default_factory=list)
    closed: bool = False

    def say(self, build: Build) -> None:
        self.said.append(build(len(self.said) + 1))

    def newest(self) -> Orders | None:
        now = 0 if self.pacer is None else self.pacer.iteration
        return next((self.schedule[k] for k in sorted(self.schedule, reverse=True) if k <= now), None)

    def await_orders(self, wait_s: float) -> Orders | None:
        return self.newest()

    def on_beat(self, callback: Callable[[], None]) -> None:
        self.beat = callback

    def close(self, wait_s: float) -> None:
        self.closed = True

    def all_said(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.said if isinstance(message, kind)]


def paced(rank: int, world: int, schedule: Mapping[int, Orders] | None = None) -> tuple[Pacer, Script]:
    """A rank that hears ``schedule``; None: nothing, though there is a control plane."""
    script, who = Script(schedule or {}), Identity(rank=rank, world=world, launcher="test")
    pacer = Pacer(who, Control(script, who), Ceiling(None, rank))
    script.pacer = pacer
    return pacer, script


def alone(rank: int, world: int) -> Pacer:
    """A rank of a script that no control plane governs."""
    return Pacer(Identity(rank=rank, world=world, launcher="test"), None, Ceiling(None, rank))


def shared(number: int, *shares: int, **changes: Any) -> Orders:
    """Orders with those shares, the ``number``th."""
    return orders(**{"sequence": number, "shares": list(shares), "shares_version": number} | changes)
