"""``python -m workers.spawner FD``: only an agent starts it, and sends the first message on that socket."""

import gc
import importlib
import os
import socket
import sys

import structlog

from workers import logs
from workers.spawner.child import Entry
from workers.spawner.lineage import call_me, die_with, thread_count
from workers.spawner.loop import SpawnerLoop
from workers.spawner.messages import Channel, Prepare, ToSpawner, Warm

log = structlog.get_logger("spawner")


def main() -> None:
    """Import what the agent requests, then serve it."""
    die_with(os.getppid())
    channel: Channel[ToSpawner] = Channel(socket.socket(fileno=int(sys.argv[1])), ToSpawner)
    messages: list[ToSpawner] = []
    try:
        while not messages:
            messages = channel.receive()
    except EOFError:
        return
    first, *pending = messages
    if not isinstance(first, Prepare):
        raise TypeError(f"the agent's first message is {type(first).__name__}, expected Prepare")
    logs.configure(json=first.json_logs)
    call_me("pl spawner")
    entry = _warm_up(first)
    channel.send(Warm(threads=thread_count()))
    SpawnerLoop(channel, first.setup, entry).run(pending)


def _warm_up(prepare: Prepare) -> Entry:
    """Import once what every fork needs, and keep the garbage collector from copying those pages."""
    for module in prepare.modules:
        importlib.import_module(module)
    module, _, function = prepare.entry.partition(":")
    entry: Entry = getattr(importlib.import_module(module), function)
    threads = thread_count()
    if threads != 1:
        log.warning(f"forking from {threads} threads, expected 1: one of {prepare.modules} starts threads on import")
    gc.collect()
    gc.freeze()
    return entry


if __name__ == "__main__":
    main()
