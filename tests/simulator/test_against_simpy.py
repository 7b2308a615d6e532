"""The kernel and simulated training against simpy: the same models, written there in ten lines, at the same times."""

import random
from collections.abc import Generator
from typing import Any

import pytest
import simpy

from controlplane.protocol.spec import Stop, Synchronization
from controlplane.simulator.disturbances import Disturbances, Wavering
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.running import play
from tests.simulator.worlds import DEMO_SPEEDS, machines, spec, world


def drawn(seed: int, customers: int) -> list[tuple[float, float]]:
    """When each customer arrives, and how long it is served."""
    chance = random.Random(seed)
    at, found = 0.0, []
    for _ in range(customers):
        at += chance.expovariate(1.0)
        found.append((at, chance.expovariate(1.25)))
    return found


def queue_here(customers: list[tuple[float, float]]) -> list[float]:
    kernel, waiting, left = Kernel(), [], []

    def arrive(served_s: float) -> None:
        waiting.append(served_s)
        if len(waiting) == 1:
            kernel.after(served_s, leave)

    def leave() -> None:
        left.append(kernel.now)
        del waiting[0]
        if waiting:
            kernel.after(waiting[0], leave)

    for at_s, served_s in customers:
        kernel.at(at_s, arrive, served_s)
    kernel.run()
    return left


def queue_there(customers: list[tuple[float, float]]) -> list[float]:
    world, left = simpy.Environment(), []
    server = simpy.Resource(world, capacity=1)

    def customer(at_s: float, served_s: float) -> Generator[Any, Any, None]:
        yield world.timeout(at_s)
        with server.request() as turn:
            yield turn
            yield world.timeout(served_s)
            left.append(world.now)

    for at_s, served_s in customers:
        world.process(customer(at_s, served_s))
    world.run()
    return left


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_queue_with_one_server_empties_at_the_same_times(seed: int) -> None:
    customers = drawn(seed, 500)
    assert queue_here(customers) == pytest.approx(queue_there(customers), rel=1e-12)


def bsp_there(iterations: int, seed: int, noise: Wavering) -> list[float]:
    """When each iteration of four workers with a barrier ends."""
    world, ended = simpy.Environment(), []
    factors = Disturbances(noise, workers=len(DEMO_SPEEDS), seed=seed)

    def job() -> Generator[Any, Any, None]:
        for k in range(iterations):
            shares = [world.timeout(64 / v * factors.factor(rank, k)) for rank, v in enumerate(DEMO_SPEEDS)]
            yield world.all_of(shares)
            ended.append(world.now)

    world.process(job())
    world.run()
    return ended


@pytest.mark.parametrize("seed", [1, 2])
def test_iterations_of_bsp_end_at_the_same_times(seed: int) -> None:
    noise = Wavering(noise=0.2, spikes=0.1)
    scenario = world(
        spec=spec(stop=Stop(iterations=80)),
        policies={"bsp": Synchronization()},
        groups=machines(*DEMO_SPEEDS),
        wavering=noise,
    )
    assert play(scenario, "bsp", seed=seed).servers.closed_s == pytest.approx(bsp_there(80, seed, noise), rel=1e-12)
