import math
import random
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.choices import Finding, Observation, Transfer
from controlplane.policies.catalogue.stragglers import EvidenceParameters
from controlplane.policies.stragglers.measuring import New, Past, Row, Worth, measure, medians_of_others, raised
from controlplane.policies.stragglers.panel import Column
from controlplane.policies.stragglers.verdict import Persistence, figures
from tests.policies.cluster import observe, resolve
from tests.support.examples import examples

EVEN = dict.fromkeys(range(4), 64)
BALANCED = {0: 79, 1: 79, 2: 79, 3: 19}
SLOW = [1000.0, 1000.0, 1000.0, 250.0]
HEALTHY = [1000.0] * 4


def watch(iterations: Iterable[Sequence[Observation]], **parameters) -> list[tuple[int, Finding]]:
    detector = resolve("stragglers", "evidence", **parameters)
    state, findings = detector.start(), []
    for count, observations in enumerate(iterations, start=1):
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=detector.state_type)
        state, found = detector.observe(observations, state)
        findings += [(count, finding) for finding in found]
    return findings


def changes(iterations, **parameters) -> list[tuple[int, int, str, str]]:
    return [
        (count, found.rank, found.kind, found.persistence if found.open else "closed")
        for count, found in watch(iterations, **parameters)
    ]


def run(speeds: Sequence[Sequence[float]], shares: dict[int, int] = EVEN, **more) -> list[list[Observation]]:
    return [observe(now, shares, iteration=iteration, **more) for iteration, now in enumerate(speeds)]


def test_a_slow_worker_is_flagged_first_as_transient_then_as_lasting_with_its_cost() -> None:
    findings = watch(run([HEALTHY] * 15 + [SLOW] * 20))
    assert [(count, found.open, found.persistence) for count, found in findings] == [
        (18, True, "transient"),
        (22, False, "lasting"),
        (22, True, "lasting"),
    ]
    assert [found.escalated for _, found in findings] == [False, True, False], "closed since it lasts, not recovered"
    lasting = findings[-1][1]
    assert lasting.sentence == (
        "w3 takes 4.0 times the others' median in compute per sample, slow in 7 of the last 8 iterations, 99.9% "
        "sure; neither its CPU nor its memory explains it; without w3 the iteration would take 68 ms instead of 260 ms"
    )
    assert lasting.evidence["cost_s"] == pytest.approx(0.192)
    assert (lasting.subject, lasting.evidence["cause"]) == ("worker", "unknown")


def test_two_milliseconds_an_iteration_are_no_flag_unless_requested() -> None:
    """A busy machine makes as much of nothing: 64 samples take 3.2 ms, those of w3 5.1 or 8 ms."""
    noise, real = [[20_000.0, 20_000.0, 20_000.0, slow] for slow in (12_500.0, 8_000.0)]
    assert changes(run([noise] * 30)) == []
    assert {rank for _, rank, _, _ in changes(run([noise] * 30), minimum_s=0.001)} == {3}
    assert {rank for _, rank, _, _ in changes(run([real] * 30))} == {3}


def test_the_workers_that_wait_are_not_flagged() -> None:
    assert {rank for _, rank, _, _ in changes(run([SLOW] * 50))} == {3}


def test_who_waits_is_flagged_on_evidence_beyond_doubt_only() -> None:
    worst, doubtful, doubtless = [1000.0, 1000.0, 700.0, 200.0], 2, 3
    assert {rank for _, rank, _, _ in changes(run([worst] * 30))} == {doubtless}
    alone = [1000.0, 1000.0, 700.0, 1000.0]
    assert {rank for _, rank, _, _ in changes(run([alone] * 30))} == {doubtful}
    both = [1000.0, 1000.0, 500.0, 200.0]
    assert {(rank, kept) for _, rank, _, kept in changes(run([both] * 30))} == {
        (2, "lasting"),
        (3, "transient"),
        (3, "closed"),
        (3, "lasting"),
    }


@pytest.mark.parametrize("length", [1, 2])
def test_a_spike_is_no_flag(length: int) -> None:
    assert changes(run([HEALTHY] * 20 + [SLOW] * length + [HEALTHY] * 20)) == []


def test_a_disturbance_is_a_transient_flag_that_closes_by_itself() -> None:
    assert changes(run([HEALTHY] * 20 + [SLOW] * 5 + [HEALTHY] * 20)) == [
        (23, 3, "compute", "transient"),
        (32, 3, "compute", "closed"),
    ]


def test_shares_do_not_hide_a_slow_machine_and_the_sentence_reports_that_it_costs_nothing() -> None:
    *_, (_, finding) = watch(run([SLOW] * 20, BALANCED))
    assert (finding.rank, finding.persistence) == (3, "lasting")
    assert finding.sentence.endswith("no current impact: the iteration takes 83 ms without w3 as well")


def test_a_machine_that_is_slow_by_its_own_past_only_is_flagged() -> None:
    fast, fallen = [2000.0, 1000.0, 1000.0, 1000.0], HEALTHY
    *_, (count, finding) = watch(run([fast] * 20 + [fallen] * 10))
    assert (count, finding.rank, finding.evidence["measure"]) == (27, 0, "own")
    assert "w0 takes 2.0 times its own usual time in compute" in finding.sentence


def test_work_that_grows_for_all_makes_no_one_slow() -> None:
    assert changes(run([HEALTHY] * 20 + [[400.0] * 4] * 30)) == []


def test_of_two_workers_the_one_that_fell_behind_its_past_is_reported_and_of_one_nothing_can_be() -> None:
    pair = {0: 64, 1: 64}
    fell = [observe([1000.0, 1000.0 if k < 20 else 400.0], pair, iteration=k) for k in range(40)]
    assert {(rank, kind) for _, rank, kind, _ in changes(fell)} == {(1, "compute")}
    assert changes([observe([1000.0, 400.0], pair, iteration=k) for k in range(40)]) == []
    assert changes([observe([1000.0 if k < 20 else 100.0], {0: 64}, iteration=k) for k in range(40)]) == []


def test_evidence_shows_the_measure_that_covers_most_iterations() -> None:
    column = Column(others=[0.5] * 8, own=[math.nan] * 7 + [0.7])
    shown = figures(column, EvidenceParameters(), Persistence.TRANSIENT)
    assert (shown.measure, shown.raised, shown.window) == ("others", 3, 3)


def test_not_enough_evidence_is_an_answer() -> None:
    detector = resolve("stragglers", "evidence")
    state = detector.start()
    for observations in run([HEALTHY] * 3):
        state, _ = detector.observe(observations, state)
    assert detector.persistence_of("worker", "compute", 2, state) == (
        Persistence.UNCLEAR,
        "not enough evidence on w2: comparable in 3 of the last 8 iterations "
        "(that takes two others, or its own past and that of another)",
    )
    for observations in run([HEALTHY] * 5):
        state, _ = detector.observe(observations, state)
    assert detector.persistence_of("worker", "compute", 2, state)[0] is Persistence.KEEPS_UP
    assert detector.persistence_of("worker", "compute", 9, state)[0] is Persistence.UNCLEAR


def test_the_cause_is_the_reading_that_rose() -> None:
    for name in ("cpu", "memory"):
        seen = [
            [
                msgspec.structs.replace(one, **{name: 0.9 if one.rank == 3 and k >= 15 else 0.2})
                for one in observe(HEALTHY if k < 15 else SLOW, EVEN, iteration=k)
            ]
            for k in range(30)
        ]
        *_, (_, finding) = watch(seen)
        assert finding.evidence["cause"] == name


def test_a_slow_link_is_told_from_slow_compute() -> None:
    seen = run([HEALTHY] * 20, communication_s=[0.02, 0.02, 0.08, 0.02])
    assert {(rank, kind) for _, rank, kind, _ in changes(seen)} == {(2, "communication")}


def exchange(servers: Sequence[float], *, iteration: int, sizes: Sequence[int] = (), links=(1.0,) * 4):
    sizes = sizes or [2**24] * len(servers)
    return [
        Transfer(
            rank=rank, server=server, iteration=iteration, bytes=sizes[server], seconds=sizes[server] / 2**24 * t * link
        )
        for rank, link in enumerate(links)
        for server, t in enumerate(servers)
    ]


def watch_servers(iterations) -> list[Finding]:
    detector = resolve("stragglers", "evidence")
    state, findings = detector.start(), []
    for transfers in iterations:
        state, found = detector.observe_servers(transfers, state)
        findings += found
    return findings


def test_a_slow_server_is_flagged_and_not_the_workers() -> None:
    *_, finding = watch_servers(exchange([0.1, 0.1, 0.1, 0.3], iteration=k) for k in range(20))
    assert (finding.subject, finding.rank, finding.kind, finding.persistence) == (
        "server", 3, "communication", "lasting"
    )  # fmt: skip
    assert finding.sentence == (
        "s3 takes 3.0 times the others' median in communication, slow in 8 of the last 8 iterations, 99.9% sure; "
        "all its workers measure it; without s3 an exchange would take 100 ms instead of 300 ms"
    )


def test_one_slow_link_makes_no_slow_server() -> None:
    assert watch_servers(exchange([0.1] * 4, iteration=k, links=(1, 1, 1, 9)) for k in range(30)) == []


def test_a_server_with_more_blocks_is_not_slow() -> None:
    sizes = [2**24, 2**24, 2**24, 2**26]
    assert watch_servers(exchange([0.1] * 4, iteration=k, sizes=sizes) for k in range(30)) == []


def test_shares_that_slow_fifty_iterations_are_a_finding() -> None:
    wrong = {0: 120, 1: 46, 2: 45, 3: 45}
    seen = run([HEALTHY] * 60, wrong) + run([HEALTHY] * 10)
    told = [(count, found) for count, found in watch(seen) if found.kind == "shares"]
    assert [(count, found.open, found.subject) for count, found in told] == [(50, True, "job"), (61, False, "job")]
    assert told[0][1].sentence == (
        "shares make the job slower: 124 ms per iteration over the last 50, even ones would have taken 68 ms"
    )


def test_good_shares_are_let_be() -> None:
    assert [found for _, found in watch(run([SLOW] * 200, BALANCED)) if found.kind == "shares"] == []


def test_nonsense_is_no_evidence() -> None:
    def bad(k: int) -> Observation:
        return Observation(
            rank=3,
            iteration=k,
            samples=[0, 9, 9][k % 3],
            compute_s=[9.0, float("nan"), -1.0][k % 3],
            communication_s=0.0,
            waiting_s=0.0,
        )

    assert changes([[*observe(HEALTHY, EVEN, iteration=k)[:3], bad(k)] for k in range(40)]) == []
    assert changes([[]] * 5) == []


def test_a_worker_a_thousand_times_slower_and_all_equal_ones() -> None:
    thousand = changes(run([[1000.0, 1000.0, 1000.0, 1.0]] * 20))
    assert {(rank, kind) for _, rank, kind, _ in thousand} == {(3, "compute")}
    assert changes(run([HEALTHY] * 50)) == []


def test_the_flag_of_a_worker_that_left_closes() -> None:
    seen = [observe(SLOW, EVEN, iteration=k)[: 4 if k < 20 else 3] for k in range(40)]
    last = watch(seen)[-1][1]
    assert (last.open, last.sentence) == (False, "w3 was not measured for 8 iterations: not enough evidence")


def test_noise_among_equal_machines_is_no_flag() -> None:
    noise = random.Random(11)
    workers = dict.fromkeys(range(16), 64)
    assert changes([observe([1000.0] * 16, workers, iteration=k, noise=noise, sigma=0.12) for k in range(300)]) == []


def test_the_median_of_the_others_leaves_itself_out_and_takes_the_upper_of_two() -> None:
    # Of those up to the first figure the others' median is the second, of those above it the first.
    assert medians_of_others([1.0, 2.0, math.nan, 3.0, 40.0], least=2) == (2.0, 3.0)
    assert medians_of_others([1.0, 2.0, 40.0], least=2) == (2.0, 40.0)
    assert medians_of_others([1.0, 2.0], least=2) is None
    assert medians_of_others([1.0, 2.0], least=1) == (1.0, 2.0)
    assert medians_of_others([], least=0) is None


times = st.sampled_from([math.nan, 0.0, -1.0, math.inf, 1e-300, 0.05, 0.051, 0.06, 0.1, 0.2, 5.0])


@settings(max_examples=examples(50), deadline=None)
@given(rows=st.lists(st.lists(times, min_size=6, max_size=6), min_size=1, max_size=30), flagged=st.booleans())
def test_figures_are_those_of_array_operations(rows: list[list[float]], flagged: bool) -> None:
    """A second reading of the formulas, by numpy and in double precision."""
    worth, outcome = Worth(part=0.05, least_s=0.001), list[New]()
    usual, counted = np.zeros(6), np.zeros(6)
    for seconds in rows:
        leaving = outcome[-4].costs if len(outcome) >= 4 else b""
        if leaving:
            learn(usual, counted, np.frombuffer(leaving, np.float32), [1, 4] if flagged else [])
        past = Past(
            leaving=leaving,
            usual=outcome[-1].usual if outcome else bytes(24),
            counted=outcome[-1].counted if outcome else bytes(24),
            flagged=[1, 4] if flagged else [],
        )
        outcome.append(
            measure(past, Row(ranks=list(range(6)), seconds=seconds, units=[1.0] * 6, iteration_s=[0.2] * 6), worth)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            costs = np.log(np.array(seconds))
        costs[~np.isfinite(costs)] = np.nan
        above_usual = np.where(counted >= 5, costs - usual, np.nan)
        expected = {
            "costs": costs,
            "others": excesses(costs, seconds, worth, least=2),
            "own": excesses(above_usual, seconds, worth, least=1),
            "usual": usual,
            "counted": counted,
        }
        for name, wanted in expected.items():
            found = np.frombuffer(getattr(outcome[-1], name), np.float32)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=name)
        assert list(outcome[-1].unmeasured) == np.flatnonzero(np.isnan(costs)).tolist()
        latest = np.fmax(*(np.frombuffer(getattr(outcome[-1], name), np.float32) for name in ("others", "own")))
        assert list(raised(outcome[-1].others, outcome[-1].own, 0.3)) == np.flatnonzero(latest >= 0.3).tolist()


def learn(usual: np.ndarray, counted: np.ndarray, leaving: np.ndarray, flagged: list[int]) -> None:
    here = ~np.isnan(leaving)
    weight = np.maximum(0.05, 1.0 / (counted + 1.0))
    weight[flagged] = 0.005
    moved = np.where(counted > 0, usual + weight * np.clip(leaving - usual, -0.2, 0.2), leaving)
    usual[here], counted[here] = moved[here].astype(np.float32), counted[here] + 1


def excesses(values: np.ndarray, seconds: list[float], worth: Worth, *, least: int) -> np.ndarray:
    found = np.full(6, np.nan)
    for column in np.flatnonzero(~np.isnan(values)):
        others = np.sort(np.delete(values, column)[~np.isnan(np.delete(values, column))])
        if len(others) < max(1, least):
            continue
        found[column] = values[column] - others[len(others) // 2]
        if found[column] > 0.1:
            lost_s = seconds[column] * -np.expm1(-found[column])
            if lost_s < max(worth.least_s, worth.part * 0.2):
                found[column] = 0.1
    return found


def test_the_findings_do_not_depend_on_the_number_of_workers() -> None:
    slow = {0: 250.0}
    found = {
        count: changes(run([[slow.get(rank, 1000.0) for rank in range(count)]] * 20, dict.fromkeys(range(count), 64)))
        for count in (8, 256)
    }
    assert (
        found[8]
        == found[256]
        == [
            (3, 0, "compute", "transient"),
            (8, 0, "compute", "closed"),
            (8, 0, "compute", "lasting"),
        ]
    )


def test_columns_follow_their_ranks_as_workers_come_and_go() -> None:
    everybody = 24

    def roster(k: int) -> range:
        return range(everybody) if k // 4 % 2 else range(10, everybody)

    seen = [
        [one for one in observe([250.0 if rank == 20 else 1000.0 for rank in range(everybody)],
         dict.fromkeys(range(everybody), 64), iteration=k) if one.rank in roster(k)]
        for k in range(60)
    ]  # fmt: skip
    assert {(rank, kind) for _, rank, kind, _ in changes(seen)} == {(20, "compute")}
