"""Processes of a benchmark, each with a pipe to it."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

Start = Callable[..., Connection]
"""``start(target, *arguments)`` runs ``target(*arguments, pipe)`` in a process of its own, and gives the pipe to it."""

END_S = 5.0


@contextmanager
def crew() -> Iterator[Start]:
    """Start processes with what this yields; all are told ``"end"``, the last first, and none outlives the block."""
    context = multiprocessing.get_context("spawn")
    controls: list[Connection] = []
    processes: list[BaseProcess] = []

    def start(target: Callable[..., None], *arguments: object) -> Connection:
        near, far = context.Pipe()
        process = context.Process(target=target, args=(*arguments, far), daemon=True)
        process.start()
        controls.append(near)
        processes.append(process)
        return near

    try:
        yield start
        for control in reversed(controls):
            control.send("end")
    finally:
        for process in processes:
            process.join(END_S)
            process.kill()
