"""Scenarios on other machines: the work stays, and what a scenario does not bear is refused."""

import pytest
from msgspec.structs import replace

from controlplane.protocol.training import Federated
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.recorded_run import with_another
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Happening, Scenario
from controlplane.simulator.scenarios import find, scenarios
from controlplane.simulator.variations import Variation, is_limited, variation_of, varied

DEMO = find("demo")


def speeds(scenario: Scenario) -> list[float]:
    return [group.machine.samples_per_second for group in scenario.machines]  # type: ignore[union-attr]


def test_nothing_requested_changes_nothing() -> None:
    assert varied(DEMO, Variation()) is DEMO
    assert (Variation().document(), Variation().sentence) == ({}, "")


@pytest.mark.parametrize(
    ("variation", "expected"),
    [
        (Variation(workers=6), [1000, 1000, 500, 250, 1000, 1000]),
        (Variation(workers=3), [1000, 1000, 500]),
        (Variation(workers=1), [1000]),
        (Variation(global_batch=1024), [1000, 1000, 500, 250]),
    ],
)
def test_more_workers_are_like_the_fastest_and_fewer_are_without_the_slowest(
    variation: Variation, expected: list[float]
) -> None:
    found = varied(DEMO, variation)
    assert speeds(found) == expected
    assert found.spec.workers == len(expected)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 6, 8])
@pytest.mark.parametrize("global_batch", [64, 256, 1000])
def test_the_samples_in_all_stay(workers: int, global_batch: int) -> None:
    spec = varied(DEMO, Variation(workers=workers, global_batch=global_batch)).spec
    iterations = spec.stop.iterations or 0
    assert spec.global_batch == pytest.approx(global_batch, abs=workers / 2)
    assert iterations * spec.global_batch == pytest.approx(200 * 256, rel=0.01)


def test_the_demo_without_its_slowest_worker_is_as_fast_as_the_next() -> None:
    usual, without = (simulate(varied(DEMO, Variation(workers=count)), "bsp") for count in (4, 3))
    assert usual.iteration_s == pytest.approx(64 / 250, rel=0.01)
    assert without.iteration_s == pytest.approx(85 / 500, rel=0.01)
    assert without.samples == pytest.approx(usual.samples, rel=0.01)


def test_a_federated_job_keeps_its_local_steps() -> None:
    federated = replace(DEMO, spec=replace(DEMO.spec, federated=Federated(local_steps=5)))
    more = with_another(federated, 0).spec
    assert (more.workers, more.batch_size, more.stop.iterations) == (5, 51, 201)
    spec = varied(federated, Variation(global_batch=2 * federated.spec.global_batch)).spec
    assert (spec.batch_size, spec.stop.iterations) == (128, 100)


def test_bandwidth_is_that_of_every_link_and_server() -> None:
    scenario = find("psld-alexnet-8")
    faster = varied(scenario, Variation(bandwidth=2.0))
    assert faster.servers.bytes_per_s == 2 * (scenario.servers.bytes_per_s or 0)
    assert [group.link.bytes_per_s for group in faster.groups] == [
        2 * (group.link.bytes_per_s or 0) for group in scenario.groups
    ]
    assert faster.paper == ()


def test_what_happens_to_workers_that_stay_still_happens_to_them() -> None:
    happenings = (Happening(kind="exclude", at_s=1.0, index=3), Happening(kind="exclude", at_s=2.0, index=1))
    slow_first = replace(DEMO, groups=DEMO.groups[::-1], happenings=happenings)
    found = varied(slow_first, Variation(workers=3))
    assert [(each.at_s, each.index) for each in found.happenings] == [(1.0, 2), (2.0, 0)]


@pytest.mark.parametrize(
    ("variation", "sentence"),
    [
        (Variation(workers=0), "workers: found 0, expected `int` >= 1"),
        (Variation(bandwidth=1000.0), "bandwidth: found 1000.0, expected `float` <= 100.0"),
        (Variation(bandwidth=2.0), "bandwidth: found 2.0, expected none: nothing in this scenario limits bandwidth"),
        (Variation(global_batch=0), "global_batch: found 0, expected `int` >= 1"),
        (Variation(global_batch=10**12), "spec.batch_size"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cure(variation: Variation, sentence: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        varied(DEMO, variation)
    assert str(refused.value).startswith(sentence)


def test_a_batch_that_no_gpu_holds_is_refused() -> None:
    with pytest.raises(ScenarioError, match="samples of memory"):
        varied(find("lb-bsp-four-gpus"), Variation(global_batch=10**5))


def test_a_document_gives_the_variation_back_and_reports_it() -> None:
    variation = Variation(workers=6, bandwidth=0.5, global_batch=512)
    assert variation_of(variation.document()) == variation
    assert variation.flags == " --workers 6 --bandwidth 0.5 --global-batch 512"
    assert variation.sentence == "6 workers, 0.5 times the bandwidth, a global batch of 512"


def test_where_bandwidth_is_unlimited_is_known() -> None:
    found = {name: is_limited(scenario) for name, scenario in scenarios().items()}
    assert (found["demo"], found["psld-alexnet-8"]) == (False, True)
