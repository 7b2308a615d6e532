"""Sums beside the gradients, on a real gloo group."""

import ctypes
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

from paceline.channel import Channel, open_channel
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


def timeouts(rank: int, world: int) -> list[float]:
    _set_pg_timeout(timedelta(hours=3), dist.group.WORLD)
    with patch("paceline.channel._sums_on_cpu", return_value=False):  # as if the script's backend were NCCL
        made = open_channel(world)
    assert isinstance(made, Channel)
    groups: list[Any] = [dist.group.WORLD, made._group]
    return [group._get_backend(torch.device("cpu")).options._timeout.total_seconds() for group in groups]


def test_a_group_beside_the_scripts_has_its_timeout() -> None:
    assert run_ranks(timeouts, 2) == [[10800.0, 10800.0]] * 2


class Late:
    """A group whose thread keeps every sum, and what it refers to, long after it is done."""

    def __init__(self) -> None:
        self.kept: list[torch.futures.Future[list[torch.Tensor]]] = []
        self.tensors: list[torch.Tensor] = []

    def allreduce(self, tensors: list[torch.Tensor]) -> torch.futures.Future[list[torch.Tensor]]:
        done: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        done.set_result(tensors)
        self.kept.append(done)
        self.tensors += tensors
        return done


def references(tensor: torch.Tensor) -> int:
    """How many references to it torch counts; Python objects have one in common."""
    return int(tensor._use_count())  # type: ignore[attr-defined]


def test_gloos_thread_is_never_left_with_the_last_references_to_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.channel.store_of_group", lambda: None)
    group = Late()
    channel = Channel(group)
    sums = [channel.begin([float(k)]) for k in range(3)]
    assert [each.result() for each in sums] == [[0.0], [1.0], [2.0]]
    assert [channel.total([float(k)]) for k in range(50)] == [[float(k)] for k in range(50)]
    del channel, sums
    group.kept.clear()
    tensors = {id(tensor): tensor for tensor in group.tensors}
    assert len(tensors) == 3, "one for each sum that was in progress at once"
    assert [references(tensor) for tensor in tensors.values()] == [2] * 3


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
