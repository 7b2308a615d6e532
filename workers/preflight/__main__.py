"""``python -m workers.preflight``: the test process. Only an agent starts it, with a ``Task`` on standard input."""

import os
import sys
import time
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from controlplane.protocol.base import MAX_TEXT
from controlplane.protocol.machine_tests import LISTEN_LIMIT_S, Listening, ListenOrder, MachineTested, MachineTestOrder
from workers.preflight.links import Echo, measure
from workers.preflight.running import Task
from workers.resources import Machine
from workers.spawner.lineage import call_me, die_with
from workers.transport.errors import Unencrypted

FIRST = 1
"""The number of each message here; the agent replaces it."""


def main() -> None:
    """Run the task, and write results to the original standard output; output of libraries goes to standard error."""
    die_with(os.getppid())
    call_me("pl preflight")
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    with os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        os.dup2(2, 1)
        if isinstance(task.order, ListenOrder):
            listen(task.order, task, answers)
        else:
            answers.write(_line(tested(task.order, task)))


def listen(order: ListenOrder, task: Task, answers: BinaryIO) -> None:
    """Be the far end of a link until the tested machine is done."""
    try:
        echo = Echo(order, task.setup)
    except (OSError, Unencrypted) as error:
        answers.write(_line(Listening(number=FIRST, test=order.test, failure=str(error)[:MAX_TEXT])))
        return
    answers.write(_line(Listening(number=FIRST, test=order.test, port=echo.port)))
    echo.wait(LISTEN_LIMIT_S)
    echo.close()


def tested(order: MachineTestOrder, task: Task) -> MachineTested:
    """Links first: importing torch must not delay them."""
    begin_s = time.monotonic()
    result = MachineTested(number=FIRST, test=order.test)
    try:
        result = replace(result, links=measure(order, task.setup))
        import torch

        from workers.preflight.computing import cpu_speed, gpu_speeds

        gpus = gpu_speeds(torch, task.setup.devices, os.environ)
        if gpus:
            flops, copied = min(gpu.flops for gpu in gpus), min(gpu.memory_bytes_per_s for gpu in gpus)
            result = replace(result, gpus=len(gpus), gpu_flops=flops, gpu_memory_bytes_per_s=copied)
        machine = Machine()
        cpu = cpu_speed(torch, threads=machine.cpu_count, memory_bytes=machine.memory_bytes)
        result = replace(result, cpu_flops=cpu.flops, memory_bytes_per_s=cpu.memory_bytes_per_s)
    except Exception as error:  # any exception of a driver or library is the result
        result = replace(result, failure=f"{type(error).__name__}: {error}"[:MAX_TEXT])
    return replace(result, seconds=time.monotonic() - begin_s)


def _line(message: Listening | MachineTested) -> bytes:
    return msgspec.json.encode(message) + b"\n"


if __name__ == "__main__":
    main()
