"""The rule of verdicts, and laws that hold for the declaration of every row."""

import math
from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from controlplane.simulator.reproduction.claims import (
    Claim,
    Finding,
    Measure,
    Mechanism,
    Played,
    Run,
    find,
    runs_of,
)
from controlplane.simulator.reproduction.live.declared import ROWS as LIVE_ROWS
from controlplane.simulator.reproduction.measures import mean_of_pairs, over_the_best, ratio_of
from controlplane.simulator.reproduction.mechanisms import (
    BLOCKS,
    OTHERS_FALL_FURTHER,
    OVERLAPPED,
    SHARES,
    in_every_pair,
)
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.simulator.reproduction.psld import WEIGHED
from controlplane.simulator.reproduction.stored import SAMPLED, comparable, digest_of, sample_of
from controlplane.simulator.reproduction.verdicts import Kind, Verdict, judge
from controlplane.simulator.scenario import check, chosen
from controlplane.simulator.scenarios import find as find_scenario
from tests.simulator.reproduction.support import claim_of, findings, played, results

ROWS = [pytest.param(claim, id=f"{paper}: {claim.statement}") for paper, (_, c) in PAPERS.items() for claim in c]
BASELINES = ("bsp", "mxnet")
A_HALF = 0.5
"""A bound that is not below it could be kept without any effect."""


@pytest.mark.parametrize(
    ("kind", "paper", "ours", "verdict"),
    [
        ("effect", 0.5, 0.5, "reproduced"),
        ("effect", 0.5, 0.4, "reproduced"),
        ("effect", 0.5, 0.3, "partly"),
        ("effect", 0.5, 0.7, "partly"),
        ("effect", 0.5, 0.8, "not"),
        ("effect", 0.5, 0.2, "not"),
        ("effect", 0.5, 0.95, "not"),
        ("effect", 0.5, 1.5, "not"),
        ("effect", 2.0, 2.2, "reproduced"),
        ("difference", -0.2, -0.15, "reproduced"),
        ("difference", -0.2, -0.35, "partly"),
        ("difference", -0.2, -0.45, "not"),
        ("difference", -0.2, 0.1, "not"),
    ],
)
def test_one_rule_gives_the_verdicts(kind: Kind, paper: float, ours: float, verdict: Verdict) -> None:
    assert judge(kind, paper, ours) == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(29.0, "reproduced"), (31.0, "not"), (10.0, "reproduced"), (9.9, "not")])
def test_what_is_at_most_so_much_has_a_bound_below_too(ours: float, verdict: Verdict) -> None:
    assert judge("at most", 30.0, ours, least=10.0) == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(1.05, "reproduced"), (0.85, "partly"), (1.25, "not")])
def test_what_is_equal_is_within_the_tolerance_of_its_row(ours: float, verdict: Verdict) -> None:
    assert judge("equal", 1.0, ours, tolerance=0.1) == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"), [(1.5, "reproduced"), (1.17, "reproduced"), (1.13, "partly"), (5.0, "not")]
)
def test_what_is_within_the_papers_range_is_reproduced(ours: float, verdict: Verdict) -> None:
    assert judge("effect", 1.25, ours, upto=2.0) == verdict


def test_an_effect_that_is_much_too_large_is_no_better_than_one_that_is_much_too_small() -> None:
    """1.61 against 5.53, which is 3.6 times the effect."""
    assert judge("effect", 1.61, 5.53) == "not"
    assert judge("effect", 1.61, 1.14) == "not"


def _found(*values: float | None, acted: int | None = None) -> Verdict:
    claim = Claim(
        where="here",
        statement="twice",
        figure=2.0,
        basis="predicted",
        runs=(Run("psp-32", "asp"), Run("psp-32", "bsp")),
        measure=ratio_of("updates"),
        note="for a test",
    )
    return Finding(claim=claim, values=values, acted=len(values) if acted is None else acted).verdict


def test_seeds_that_miss_the_target_make_the_verdict_worse() -> None:
    assert _found(2.0, 2.0, 2.0, 2.0) == "reproduced"
    assert _found(2.0, 2.0, 2.0, None) == "partly"
    assert _found(2.0, 2.0, None, None) == "not"
    assert _found(None) == "not"


def test_a_row_does_not_pass_without_its_mechanism() -> None:
    assert _found(2.0, 2.0, acted=1) == "not"
    claim = claim_of("psp", "ASP makes 200 updates")
    idle = Mechanism("never", lambda _: False)
    assert find(claim, [0], played).acted == 1
    assert find(_with(claim, mechanism=idle), [0], played).verdict == "not"


@pytest.mark.parametrize(
    ("bsp", "asp", "acts"),
    [((0.8, 0.6), (0.8, 0.7), True), ((0.8, 0.6), (0.8, 0.79), False), ((0.8, 0.6), (0.8, None), False)],
)
def test_a_small_loss_counts_only_beside_larger_ones(
    bsp: tuple[float, float], asp: tuple[float, float | None], acts: bool
) -> None:
    outcome = played(Run("psp-32", "bsp"), 0).outcome
    runs = [
        Played(outcome=outcome, spans=[], accuracies=[] if mean is None else [mean], cpu_s=0.0)
        for mean in (0.8, 0.75, *bsp, *asp)
    ]
    assert OTHERS_FALL_FURTHER.acts(runs) is acts


def _with(claim: Claim, **changes: object) -> Claim:
    fields = {name: getattr(claim, name) for name in Claim.__slots__}
    return Claim(**(fields | changes))


@pytest.mark.parametrize("claim", ROWS)
def test_every_row_reports_why_and_has_runs_that_exist(claim: Claim) -> None:
    assert claim.note.strip()
    for run in runs_of([claim]):
        scenario = find_scenario(run.scenario)
        check(scenario)
        assert chosen(scenario, run.policy)


@pytest.mark.parametrize("claim", ROWS)
def test_no_tolerance_is_as_wide_as_the_effect(claim: Claim) -> None:
    """Not even *partly* can be given to a figure that says the opposite of the paper."""
    if claim.kind == "equal":
        assert claim.tolerance
        assert claim.otherwise is not None
        assert 2 * claim.tolerance < abs(claim.otherwise - claim.figure)
        assert judge("equal", claim.figure, claim.otherwise, tolerance=claim.tolerance) == "not"
        return
    assert claim.tolerance is None
    assert (claim.least is not None) == (claim.kind == "at most")
    if claim.least is not None:
        assert 0.0 <= claim.least < claim.figure
        if claim.figure >= A_HALF and claim.measure is not None and claim.basis != "by construction":
            assert claim.otherwise is not None
            assert judge("at most", claim.figure, claim.otherwise, least=claim.least) == "not"
    else:
        assert claim.otherwise is None
    if claim.kind == "effect":
        assert judge("effect", claim.figure, 1.0) == "not"
    if claim.kind == "difference":
        assert judge("difference", claim.figure, 0.0) == "not"


@pytest.mark.parametrize("claim", ROWS)
def test_a_predicted_row_names_the_mechanism_that_must_be_seen(claim: Claim) -> None:
    """But for rows about a baseline alone, which has none."""
    is_free = claim.basis != "predicted" or claim.measure is None or not claim.runs
    if not is_free and claim.runs[0].policy not in BASELINES:
        assert claim.mechanism is not None


@pytest.mark.parametrize("paper", PAPERS)
def test_no_two_rows_are_of_one_comparison(paper: str) -> None:
    """Neither under other names nor with other parameters that do the same."""
    counted = Counter(
        msgspec.json.encode([claim.measure.name, [comparable(run) for run in claim.runs]], order="sorted")
        for claim in PAPERS[paper][1]
        if claim.measure is not None
    )
    assert not [key for key, count in counted.items() if count > 1]
    figures = Counter(
        (found.claim.measure.name, found.values)
        for found in findings()[paper]
        if found.claim.measure is not None and len({*found.values}) > 1
    )
    assert not [key for key, count in figures.items() if count > 1]


def _comparisons(claims: Iterable[Claim]) -> Counter[bytes]:
    """Of predicted rows: measure and two runs, of which rows over several have many."""
    return Counter(
        msgspec.json.encode(
            [claim.measure.name.partition(":")[0], [comparable(run) for run in claim.runs[at : at + 2]]], order="sorted"
        )
        for claim in claims
        if claim.measure is not None and claim.basis == "predicted" and claim.runs
        for at in (range(0, len(claim.runs), 2) if ":" in claim.measure.name or "pairs" in claim.measure.name else (0,))
    )


@pytest.mark.parametrize("paper", PAPERS)
def test_no_comparison_of_two_runs_is_counted_twice(paper: str) -> None:
    """Neither by itself and in a row over several, nor as what two other rows say together."""
    assert set(_comparisons(PAPERS[paper][1]).values()) == {1}


def test_no_comparison_of_two_live_runs_is_counted_twice() -> None:
    """Nor one of several rows for one headline, which would count as so many."""
    assert set(_comparisons(row.claim for row in LIVE_ROWS).values()) == {1}
    headlines = Counter((row.paper, row.number) for row in LIVE_ROWS if row.claim.basis == "predicted")
    assert [headline for headline, count in headlines.items() if count > 1] == []


def test_a_row_over_several_jobs_is_the_mean_of_their_ratios() -> None:
    rows = [claim_of("psp", "ASP makes 200"), claim_of("psp", "pBSP makes about 85")]
    one, other = ([played(run, 0) for run in claim.runs] for claim in rows)
    ratios = [ratio_of("updates")(pair) for pair in (one, other)]
    assert mean_of_pairs(ratio_of("updates"))([*one, *other]) == pytest.approx(math.prod(filter(None, ratios)) ** 0.5)
    nothing = Measure("nothing", lambda pair: None if pair[0] is other[0] else 1.0)
    assert mean_of_pairs(nothing)([*one, *one]) == 1.0
    assert mean_of_pairs(nothing)([*one, *other]) is None
    idle = Mechanism("the first job's only", lambda pair: pair[0] is one[0])
    assert in_every_pair(idle).acts([*one, *one])
    assert not in_every_pair(idle).acts([*one, *other])


def test_a_headline_that_no_seed_reaches_is_not_reproduced() -> None:
    claim = claim_of("psp", "ASP makes 200 updates")
    found = find(_with(claim, measure=Measure("nothing", lambda _: None)), [0, 1], played)
    assert (found.values, found.missing, found.mean, found.verdict) == ((None, None), 2, None, "not")


def test_a_row_without_a_measure_is_counted_as_not_measured() -> None:
    claim = _with(claim_of("psp", "ASP makes 200 updates"), measure=None)
    assert find(claim, [0], played).verdict == "not measured"


def test_shares_must_follow_speeds_and_not_only_differ() -> None:
    one = played(Run("lb-bsp-four-gpus", "lb-bsp-gpu"), 0)
    assert SHARES.acts([one])
    assert not SHARES.acts([_worked(one, [(30, 1.0), (20, 2.0), (10, 4.0), (40, 9.0)])])
    assert not SHARES.acts([_worked(one, [(20, 1.0), (20, 2.0), (20, 4.0), (20, 9.0)])])
    assert not SHARES.acts([msgspec.structs.replace(one, work=[])])


def _worked(one: Played, work: list[tuple[int, float]]) -> Played:
    """Each worker made one iteration: its samples, and its seconds."""
    return msgspec.structs.replace(
        one, work=work, outcome=msgspec.structs.replace(one.outcome, progress=[1] * len(work))
    )


def test_moved_blocks_must_make_exchanges_shorter() -> None:
    one = played(Run("psld-alexnet-8", "psld"), 0)
    assert BLOCKS.acts([one])
    assert not BLOCKS.acts([msgspec.structs.replace(one, exchanges=[(1.0, 1.1), (1.1, 1.05)])])
    assert not BLOCKS.acts([msgspec.structs.replace(one, exchanges=[])])


def test_rows_on_the_weight_of_sending_need_it_to_overlap_computing() -> None:
    one = played(Run("psld-alexnet-8", "psld"), 0)
    assert OVERLAPPED.acts([one])
    assert not OVERLAPPED.acts(
        [msgspec.structs.replace(one, outcome=msgspec.structs.replace(one.outcome, compute=0.0))]
    )
    assert claim_of("psld", "alexnet: PSLD makes training").mechanism == WEIGHED


@pytest.mark.parametrize("metric", ["updates_to_target", "time_to_target_s"])
def test_a_run_that_begins_at_its_target_has_no_time_to_it(metric: str) -> None:
    one = played(Run("psld-alexnet-8", "psld"), 0)
    begun, later = (
        msgspec.structs.replace(one, outcome=msgspec.structs.replace(one.outcome, **{metric: value}))
        for value in (0, 8)
    )
    assert ratio_of(metric)([begun, later]) is None
    assert ratio_of(metric)([later, begun]) is None
    assert ratio_of(metric)([later, later]) == 1.0
    assert over_the_best(metric)([begun, later]) is None


def test_a_change_of_the_code_draws_another_sample_with_one_row_that_takes_long() -> None:
    claims, stored = {paper: rows for paper, (_, rows) in PAPERS.items()}, results()
    count = -(-sum(map(len, claims.values())) // SAMPLED)
    samples = [sample_of(claims, stored, code) for code in ("one", "another", "a third")]
    assert [len(sample) for sample in samples] == [count] * 3
    assert len({row for sample in samples for row in sample}) > 2 * count
    assert len({sample[0] for sample in samples}) > 1
    assert sample_of(claims, stored, "one") == samples[0]


def test_the_digest_of_a_row_is_of_what_decides_its_figures_and_of_the_seeds() -> None:
    claim = claim_of("psp", "ASP makes 200 updates")
    digest = digest_of(claim, range(8))
    assert digest_of(_with(claim, note="said otherwise"), range(8)) == digest
    for verdicts_only in (_with(claim, figure=2.4), _with(claim, basis="predicted")):
        assert digest_of(verdicts_only, range(8)) == digest
    for other in (
        _with(claim, measure=ratio_of("samples")),
        _with(claim, mechanism=Mechanism("another", lambda _: True)),
        _with(claim, runs=claim.runs[::-1]),
    ):
        assert digest_of(other, range(8)) != digest
    assert digest_of(claim, range(1, 9)) != digest
