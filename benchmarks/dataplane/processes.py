"""Processes of a benchmark, each with a pipe to it."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

Start = Callable[..., Connection]
"""``start(target, *arguments)`` runs ``target(*arguments, pipe)`` in a separate process, and gives the pipe to it."""

END_S = 5.0


@contextmanager
def spawning(*, ask: bool = True) -> Iterator[Start]:
    """Start processes with what this yields; none outlives the block.

    At its end all are sent ``"end"``, the last first, unless they do not ``ask`` for it: then they are terminated.
    """
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
        for control in reversed(controls) if ask else ():
            control.send("end")
    finally:
        for process in processes:
            if not ask:
                process.terminate()
            process.join(END_S)
            process.kill()
