"""What-if of an attached job: its ranks behave as their reports show, and only what it could choose is compared."""

from controlplane.protocol.spec import parse_spec
from controlplane.simulator.recorded_run import outline_of, read_run, scenario_of
from controlplane.simulator.scenario import check
from tests.core.attached import Attached
from tests.core.story import LB_BSP


def recorded() -> Attached:
    story = Attached(workers=3).running()
    for iteration in range(40):
        for rank, speed in enumerate((1000.0, 1000.0, 250.0)):
            story.report(rank, iteration, compute_s=32 / speed, pull_s=0.01, waiting_s=0.1)
    return story


def test_what_an_attached_job_did_can_be_played_again() -> None:
    story = recorded()
    scenario = scenario_of(read_run(7, story.entries))
    check(scenario)
    assert (scenario.spec.workers, len(scenario.groups)) == (3, 3)


def test_only_what_an_attached_job_could_choose_is_compared() -> None:
    spec = parse_spec({"name": "mine", "launch": "attached", "workers": 3, "batch_size": 32, "synchronization": LB_BSP})
    assert set(outline_of(7, spec, 40).policies) == {"recorded", "bsp", "lb-bsp-ema", "lb-bsp-linear"}


def test_its_size_is_what_its_ranks_reported() -> None:
    told = Attached(workers=1, batch_size=1).submitted()
    for rank in range(3):
        told.comes(rank, world=3, batch_size=16)
    for iteration in range(20):
        for rank in range(3):
            told.report(rank, iteration)
    run = read_run(7, told.entries)
    assert (run.spec.workers, run.spec.batch_size) == (3, 16)
