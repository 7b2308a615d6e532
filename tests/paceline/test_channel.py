"""Sums beside the gradients, on a real gloo group."""

import ctypes
import threading

from paceline.channel import Channel
from tests.paceline.ranks import run_ranks

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
    channel.total([0.0])  # by now gloo is through with what the test's own set-up had it do
    before = thread_states()
    totals = [channel.total([float(rank), 1.0, float(k)]) for k in range(ROUNDS)]
    return totals[-1], thread_states() - before - 1


def test_sums_make_no_thread_of_gloos_ask_for_a_thread_state_which_a_fork_could_inherit_locked() -> None:
    assert run_ranks(sums, 2) == [([1.0, 2.0, 2.0 * (ROUNDS - 1)], 0)] * 2
