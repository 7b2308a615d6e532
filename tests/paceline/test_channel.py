"""Sums beside the gradients, on a real gloo group."""

import ctypes
import subprocess
import sys
import threading

from paceline.channel import Channel
from tests.architecture.sources import ROOT
from tests.paceline.ranks import free_port, run_ranks

ROUNDS = 50


def thread_states() -> int:
    """How many thread states Python has made so far: each new thread's has the next number."""
    found: list[int] = []
    state, number = ctypes.pythonapi.PyThreadState_Get, ctypes.pythonapi.PyThreadState_GetID
    state.restype, number.argtypes, number.restype = ctypes.c_void_p, [ctypes.c_void_p], ctypes.c_uint64
    thread = threading.Thread(target=lambda: found.append(number(state())))
    thread.start()
    thread.join()
    return found[0]


def sums(rank: int, world: int) -> tuple[list[float], int]:
    channel = Channel()
    for _ in range(ROUNDS):  # until gloo is through with what the test's own set-up had it do
        before = thread_states()
        channel.total([0.0])
        if thread_states() == before + 1:
            break
    before = thread_states()
    totals = [channel.total([float(rank), 1.0, float(k)]) for k in range(ROUNDS)]
    return totals[-1], thread_states() - before - 1


def test_sums_make_no_thread_of_gloos_need_a_thread_state_which_a_fork_could_inherit_locked() -> None:
    assert run_ranks(sums, 2) == [([1.0, 2.0, 2.0 * (ROUNDS - 1)], 0)] * 2


ENDS_DURING_SUMS = """
import os, sys
from datetime import timedelta
import torch.distributed as dist
from paceline.channel import Channel

def train():
    rank = int(sys.argv[1])
    store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), 2, is_master=rank == 1, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    channel = Channel()
    channel.total([0.0])
    if rank:  # its sums come while the other's interpreter ends
        store.wait(["ending"])
    sums = [channel.begin([1.0]) for _ in range(8)]
    if rank:
        sums[-1].result()
        os._exit(0)
    channel.close()
    store.set("ending", "")

ballast = [[] for _ in range(2_000_000)]  # what the ending interpreter looks through meanwhile
train()
"""


def test_a_process_ends_well_during_a_sum_though_gloos_thread_is_not_through_with_it() -> None:
    for _ in range(2):
        port = free_port()
        ranks = [
            subprocess.Popen([sys.executable, "-c", ENDS_DURING_SUMS, f"{rank}", f"{port}"], cwd=ROOT)
            for rank in range(2)
        ]
        try:
            assert [rank.wait(120) for rank in ranks] == [0, 0]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
