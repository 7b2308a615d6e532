import statistics
from typing import Any

import pytest

from controlplane.core.events import Entry, JobSubmitted, WorkerMessageReceived
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import ControlPlane, Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.learned_machine import Recorded, RecordedMachine, Sample, learn_machine
from controlplane.simulator.machines import CpuMachine, SlowPeriod
from controlplane.simulator.network import Link, Network, ServerSpec
from controlplane.simulator.outcome import relative_errors
from controlplane.simulator.recorded_run import TooLittle, read_run, scenario_of
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Group, Happening, chosen
from controlplane.simulator.whatif import Ways, fastest, slowest, what_if, what_if_simulated
from tests.simulator.worlds import world


def recorded(policy: str = "bsp", **changes: Any) -> list[Entry]:
    recording = Recording(keep=True)
    scenario = world(**({"wavering": Wavering(noise=0.05), "control": ControlPlane(latency_s=0.001)} | changes))
    Cluster(scenario, chosen(scenario, policy), seed=3, recording=recording).run()
    return recording.entries


def sample(iteration: int, samples: int, compute_s: float, **changes: Any) -> Sample:
    base = {"at_s": iteration * 1.0, "communication_s": 0.0, "total_s": compute_s, "cpu": 0.5, "memory": 0.25}
    return Sample(iteration=iteration, samples=samples, compute_s=compute_s, **(base | changes))


def machine(*samples: Sample) -> RecordedMachine:
    return learn_machine(samples, float(len(samples)))


def test_shares_that_differ_tell_the_fixed_part_from_that_per_sample() -> None:
    learned = machine(*(sample(k, x, 0.2 + 0.01 * x) for k, x in enumerate([10, 20, 40, 80, 160, 30])))
    assert (learned.fixed_s, learned.each_s) == pytest.approx((0.2, 0.01))


def test_equal_shares_are_taken_as_proportional() -> None:
    learned = machine(*(sample(k, 64, 0.64) for k in range(12)))
    assert (learned.fixed_s, learned.each_s) == pytest.approx((0.0, 0.01))


def test_a_machine_that_slows_down_for_a_while_does_so_again_when_played() -> None:
    learned = machine(*(sample(k, 64, 0.64 * (3 if 20 <= k < 40 else 1)) for k in range(60)))
    assert [round(level, 2) for level in learned.level] == [1.0] * 4 + [3.0] * 4 + [1.0] * 4
    assert set(learned.noise) == {1.0}


def test_what_slowed_two_machines_down_at_once_does_so_again() -> None:
    spikes = [3.0 if k % 7 == 0 else 1.0 for k in range(60)]
    fast = Recorded(machine(*(sample(k, 64, 0.1 * times) for k, times in enumerate(spikes))), 5)
    slow = Recorded(machine(*(sample(k, 64, 0.4 * times) for k, times in enumerate(spikes))), 5)
    taken = [(fast.finish_s(64, 0.0, k), slow.finish_s(64, 0.0, k)) for k in range(200)]
    assert {round(long / short, 6) for short, long in taken} == {4.0}
    assert {round(short, 6) for short, _ in taken} == {0.1, 0.3}


def test_exchanges_are_slow_again_when_the_machine_was() -> None:
    spikes = [3.0 if k % 7 == 0 else 1.0 for k in range(60)]
    busy = Recorded(machine(*(sample(k, 64, 0.1 * times) for k, times in enumerate(spikes))), 5)
    link = Link(recorded_s=tuple(0.01 * times for times in spikes))
    network = Network(Kernel(), [link], [ServerSpec()], seed=5)
    taken = [(busy.finish_s(64, 0.0, k), network.direct_s(0, 1_000, k)) for k in range(200)]
    assert {(round(compute_s, 6), round(way_s, 6)) for compute_s, way_s in taken} == {(0.1, 0.01), (0.3, 0.03)}


def test_the_model_predicts_the_run_that_it_was_learned_from() -> None:
    answer = what_if(read_run(1, recorded()), Ways(policies=["asp"]), seeds=3)
    assert answer.fit.what == "iterations"
    assert answer.fit.compared > 30
    assert answer.fit.error_of_mean < 0.02
    assert 0.0 < answer.fit.error_median < 0.06
    assert answer.fit.error_median <= answer.fit.error_p95


def test_what_other_policies_would_have_done_is_what_they_do_on_the_true_machines() -> None:
    answer = what_if(read_run(1, recorded()), Ways(policies=["lb-bsp-linear"]), seeds=3)
    truth = simulate(world(wavering=Wavering(noise=0.05)), "lb-bsp-linear", seed=3)
    assert answer.alternatives[0].iteration_s == pytest.approx(truth.iteration_s, rel=0.05)
    assert answer.alternatives[0].saved_low <= answer.alternatives[0].saved <= answer.alternatives[0].saved_high
    assert answer.alternatives[0].saved > 0.5


def test_bsp_is_predicted_from_measurements_under_unequal_shares() -> None:
    answer = what_if(read_run(1, recorded("lb-bsp")), Ways(policies=["bsp"]), seeds=2)
    truth = simulate(world(wavering=Wavering(noise=0.05)), "bsp", seed=3)
    assert answer.alternatives[0].iteration_s == pytest.approx(truth.iteration_s, rel=0.05)
    assert answer.alternatives[0].saved < -1.0


def test_without_its_slowest_worker_the_job_is_faster_with_the_same_samples() -> None:
    run = read_run(1, recorded())
    assert slowest(run, 1) == [3]
    answer = what_if(run, Ways(policies=["bsp"], without=[0, 3]), seeds=2)
    by_name = {one.name: one for one in answer.alternatives}
    # 256 samples over three machines, of which the slowest has 500 a second, against 64 at 250.
    assert by_name["without w3"].iteration_s == pytest.approx(86 / 500, rel=0.1)
    assert by_name["without w3"].saved > 0.25
    assert by_name["without w0"].saved < 0.0
    assert by_name["without w3"].samples == pytest.approx(1.0, abs=0.01)


def test_who_is_slowest_is_seen_under_shares_that_make_all_equally_busy() -> None:
    run = read_run(1, recorded("lb-bsp"))
    assert [slowest(run, count) for count in (1, 2)] == [[3], [2, 3]]


def test_one_more_machine_takes_its_part_of_the_same_samples() -> None:
    run = read_run(1, recorded("lb-bsp"))
    assert fastest(run) in {0, 1}
    answer = what_if(run, Ways(policies=["bsp"], like=[0]), seeds=2)
    more = next(one for one in answer.alternatives if one.name == "one more like w0")
    # 1000 + 1000 + 500 + 250 samples a second, and 1000 more for the same 256 samples.
    assert more.kind == "machines"
    assert more.iteration_s / answer.recorded.iteration_s == pytest.approx(2750 / 3750, rel=0.1)
    assert more.saved == pytest.approx(1 - 2750 / 3750, abs=0.08)
    assert more.samples == pytest.approx(1.0, abs=0.01)


def test_one_more_machine_under_even_shares_leaves_the_slowest_its_part() -> None:
    answer = what_if(read_run(1, recorded()), Ways(policies=["asp"], like=[0]), seeds=2)
    more = next(one for one in answer.alternatives if one.kind == "machines")
    assert more.iteration_s == pytest.approx(51 / 250, rel=0.1)


def test_twice_the_bandwidth_halves_what_exchanges_take() -> None:
    links = (Group(count=4, machine=CpuMachine(samples_per_second=1000.0), link=Link(bytes_per_s=80_000.0)),)
    entries = recorded(groups=links, tensor_sizes=(1000,), wavering=Wavering())
    answer = what_if(read_run(1, entries), Ways(policies=["asp"], bandwidths=[2.0, 4.0]), seeds=2)
    ways = {one.name: one for one in answer.alternatives if one.kind == "machines"}
    # 4,000 bytes each way take 0.1 s in all, beside 0.064 s of work.
    assert answer.recorded.iteration_s == pytest.approx(0.164, rel=0.05)
    assert ways["twice the bandwidth"].iteration_s == pytest.approx(0.114, rel=0.05)
    assert ways["4 times the bandwidth"].iteration_s == pytest.approx(0.089, rel=0.06)


def test_a_simulated_run_is_played_on_its_own_machines() -> None:
    scenario = world(wavering=Wavering(noise=0.05))
    truth = simulate(scenario, "bsp", seed=3)
    ways = Ways(policies=["lb-bsp-linear"], without=[3], like=[0], bandwidths=[2.0])
    answer = what_if_simulated(7, scenario, "bsp", ways, iteration_s=truth.iteration_s, seeds=2)
    assert (answer.job, answer.fit.what, answer.fit.compared) == (7, "seeds", 2)
    assert answer.fit.error_of_mean < 0.03
    assert {one.name: one.kind for one in answer.alternatives} == {
        "lb-bsp-linear": "policy",
        "without w3": "machines",
        "one more like w0": "machines",
        "twice the bandwidth": "machines",
    }
    assert answer.alternatives[0].name == "lb-bsp-linear"
    more = {one.name: one.saved for one in answer.alternatives}
    assert more["without w3"] > 0.25
    assert more["one more like w0"] == pytest.approx(1 - 51 / 64, abs=0.05)


def test_an_asynchronous_run_is_judged_worker_by_worker() -> None:
    answer = what_if(read_run(1, recorded("asp")), Ways(policies=["bsp"]), seeds=2)
    assert (answer.fit.what, answer.fit.compared) == ("workers", 4)
    assert answer.fit.error_p95 < 0.05


def test_a_worker_that_left_leaves_in_the_model_too() -> None:
    run = read_run(1, recorded(happenings=(Happening(kind="leave", at_s=6.0, index=3),)))
    assert run.left_s.keys() == {3}
    assert scenario_of(run).happenings[0].at_s == pytest.approx(6.0, abs=0.4)
    assert what_if(run, Ways(policies=["bsp"]), seeds=2).fit.error_of_mean < 0.1


def test_lasting_slowness_is_in_the_model() -> None:
    slow = CpuMachine(samples_per_second=1000.0, slow=(SlowPeriod(times=8.0, from_s=0.8, until_s=4.0),))
    groups = (Group(count=3, machine=CpuMachine(samples_per_second=1000.0)), Group(count=1, machine=slow))
    run = read_run(1, recorded(groups=groups))
    fit = what_if(run, Ways(policies=["asp"]), seeds=2).fit
    assert fit.error_median < 0.1
    assert max(run.iteration_s.values()) > 4 * statistics.median(run.iteration_s.values())


def test_a_run_that_has_hardly_begun_is_refused_with_what_is_missing() -> None:
    entries = recorded()
    early = [
        e for n, e in enumerate(entries) if n < 40 or not isinstance(e.event, WorkerMessageReceived | JobSubmitted)
    ]
    with pytest.raises(TooLittle, match=r"job 1: w\d has \d iterations past its first 2, 10 are needed: let the job"):
        read_run(1, early)
    with pytest.raises(TooLittle, match="does not begin with its submission"):
        read_run(1, entries[1:])


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ScenarioError, match="policies: found 'fastest', expected one of recorded, bsp"):
        what_if(read_run(1, recorded()), Ways(policies=["fastest"]), seeds=2)


def test_an_iteration_that_seems_to_take_no_time_is_not_missed_by_a_billion_per_cent() -> None:
    assert relative_errors([0.015, 0.012], [0.0, 0.010]) == pytest.approx([0.2, 15.0])
