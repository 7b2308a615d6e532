import pytest

from benchmarks.live.twin import BALANCED, BSP, Pair, document, table
from controlplane.simulator.running import simulate
from controlplane.simulator.scenarios import find


def test_a_prediction_that_is_too_far_off_is_missed() -> None:
    near = Pair(label="BSP", measured_s=0.26, predicted_s=0.256)
    far = Pair(label="LB-BSP", measured_s=0.12, predicted_s=0.094)
    unjudged = Pair(label="by speeds", measured_s=0.12, predicted_s=0.094, is_judged=False)
    found = document([near, far, unjudged])
    assert len(found["failures"]) == 1
    assert found["failures"][0].startswith("LB-BSP: predicted 0.0940 s, measured 0.1200 s, -21.7%")
    assert f"{'BSP':24}    260.0 ms    256.0 ms    -1.5%" in table(found)


def test_the_demos_runs_are_policies_of_its_scenario() -> None:
    bsp, balanced = (simulate(find("demo"), policy).iteration_s for policy in (BSP, BALANCED))
    assert (bsp, balanced) == pytest.approx((0.256, 0.094), rel=0.01)
