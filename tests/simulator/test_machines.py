import numpy as np
import pytest

from controlplane.protocol.spec import Stop
from controlplane.simulator.background import Background, Competitor, competing_load, generated_load, speed_left
from controlplane.simulator.disturbances import Disturbances, Wavering
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.machines import (
    CompetingMachine,
    CpuMachine,
    GpuMachine,
    Machine,
    MachineSpec,
    SharedMachine,
    SlowPeriod,
    TracedMachine,
    build_machine,
)
from controlplane.simulator.running import simulate
from tests.simulator.worlds import alike, spec, world

QUIET = Disturbances(Wavering(), workers=4, seed=0)


def built(machine: MachineSpec, *, rank: int = 0, seed: int = 0) -> Machine:
    return build_machine(machine, rank=rank, seed=seed, length_s=600.0, wavering=QUIET)


def test_a_cpu_machine_takes_an_overhead_and_so_much_per_sample() -> None:
    machine = built(CpuMachine(samples_per_second=100.0, overhead_s=0.5))
    assert machine.finish_s(50, 2.0, 0) == 3.0
    assert [machine.processed(50, 2.0, at_s, 0) for at_s in (2.2, 2.5, 2.75, 3.0, 9.0)] == [0, 0, 25, 50, 50]


def test_a_machine_n_times_slower_takes_n_times_as_long() -> None:
    machine = built(CpuMachine(samples_per_second=100.0, overhead_s=0.5, slowness=4.0))
    assert machine.finish_s(50, 0.0, 0) == 4.0


def test_a_slow_period_applies_to_what_begins_in_it() -> None:
    machine = built(CpuMachine(samples_per_second=10.0, slow=(SlowPeriod(times=3.0, from_s=5.0, until_s=6.0),)))
    assert [machine.finish_s(10, at_s, 0) - at_s for at_s in (4.9, 5.0, 6.0)] == pytest.approx([1.0, 3.0, 1.0])


def test_a_gpu_takes_as_long_for_few_samples_as_for_enough_to_saturate_it() -> None:
    machine = built(GpuMachine(launch_s=0.1, seconds_per_sample=0.01, saturation=20, memory_samples=64))
    assert [machine.finish_s(count, 0.0, 0) for count in (1, 20, 40)] == pytest.approx([0.3, 0.3, 0.5])
    assert not machine.interruptible


def test_a_batch_that_does_not_fit_into_a_gpu_is_refused_with_the_limit() -> None:
    machine = built(GpuMachine(launch_s=0.1, seconds_per_sample=0.01, memory_samples=64), rank=2)
    with pytest.raises(ScenarioError, match="machine of w2: found 'a share of 65', expected at most the 64"):
        machine.finish_s(65, 0.0, 0)


def test_a_traced_machine_works_with_what_is_left() -> None:
    machine = built(TracedMachine(samples_per_second=100.0, cpu=(0.0, 0.5), memory=(0.2, 0.9), step_s=1.0))
    half_and_swapping = 0.5 / 1.1
    assert machine.finish_s(100, 0.0, 0) == pytest.approx(1.0)
    assert machine.finish_s(110, 0.0, 0) == pytest.approx(1.0 + 10 / (100 * half_and_swapping))
    assert machine.load(1.5, 1) == (0.5, 0.9)
    assert machine.processed(1000, 0.0, 1.0, 0) == 100


def test_machines_are_the_same_for_every_policy_and_others_for_other_seeds_and_ranks() -> None:
    shared = SharedMachine(samples_per_second=100.0)
    one, again, other_seed, other_rank = (
        [built(shared, rank=rank, seed=seed).finish_s(1000, at_s, 0) for at_s in range(0, 500, 50)]
        for rank, seed in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert one == again
    assert one != other_seed
    assert one != other_rank


def test_tasks_of_others_take_about_what_the_settings_state() -> None:
    background = Background(arrivals_per_hour=60.0, stay_s=120.0, popularity=0.0, cores=(1.0, 1.0))
    cpu, memory = generated_load(background, 8, 32, 200_000.0, np.random.default_rng(1))
    # 60 arrivals an hour that stay for 2 minutes: 2 tasks at a time, each on one of 8 cores.
    assert cpu.mean() == pytest.approx(2 / 8, rel=0.1)
    assert memory.min() == pytest.approx(4.8 / 32)
    assert 0.0 <= cpu.min() <= cpu.max() <= 1.0


def test_a_competing_process_runs_as_often_as_it_should_and_for_a_while() -> None:
    competitor = Competitor(cpu=0.6, runs=0.3, changes=0.1)
    cpu, _ = competing_load(competitor, 50_000.0, np.random.default_rng(1))
    assert set(np.unique(cpu)) == {0.0, 0.6}
    assert (cpu > 0).mean() == pytest.approx(0.3, abs=0.03)
    assert (np.diff(cpu) != 0).mean() == pytest.approx(2 * 0.3 * 0.7 * 0.1, rel=0.2)


def test_a_scheduler_leaves_something_however_much_others_want() -> None:
    assert speed_left(np.array([1.0]), np.array([0.0])) == pytest.approx([0.2])


def test_the_slowest_machine_at_level_3_has_a_third_of_the_speed_of_the_fastest() -> None:
    competing = CompetingMachine(samples_per_second=90.0, competitor=Competitor(cpu=2 / 3, runs=1.0))
    assert built(competing).finish_s(90, 0.0, 0) == pytest.approx(3.0)


def test_disturbances_are_of_mean_one_and_depend_on_nothing_but_seed_worker_and_iteration() -> None:
    wavering = Wavering(noise=0.3)
    forwards, backwards = (Disturbances(wavering, workers=50, seed=3) for _ in range(2))
    there = [[forwards.factor(rank, k) for rank in range(50)] for k in range(200)]
    back = [[backwards.factor(rank, k) for rank in reversed(range(50))][::-1] for k in reversed(range(200))][::-1]
    assert there == back
    assert np.mean(there) == pytest.approx(1.0, abs=0.02)


def test_spikes_come_as_often_as_they_should_and_last_one_iteration_or_two() -> None:
    disturbances = Disturbances(Wavering(spikes=0.02, spike_times=(2.0, 2.0)), workers=20, seed=1)
    factors = np.array([[disturbances.factor(rank, k) for k in range(2000)] for rank in range(20)])
    assert set(np.unique(factors)) == {1.0, 2.0}
    assert (factors == 2.0).mean() == pytest.approx(0.03, abs=0.005)


def test_a_gpu_cannot_be_cut_and_a_cpu_can() -> None:
    gpu = GpuMachine(launch_s=0.0, seconds_per_sample=0.01, memory_samples=64)
    job = spec(workers=2, servers=1, batch_size=32, stop=Stop(iterations=10))
    whole = simulate(world(spec=job, groups=alike(2, gpu)), "aggressive")
    assert whole.samples == 10 * 64
