"""What workers draw and cost: spec, labels, and the stated default."""

from typing import Any

import pytest

from controlplane.jobs.validation import validated_spec
from controlplane.protocol.energy import BUSY_WATTS, IDLE_WATTS, Draw, Energy, Power, draw_of, labelled_power
from controlplane.protocol.spec import SpecError, parse_spec, spec_document
from tests.protocol.test_spec import document

ENERGY = {"objective": "energy", "slack": 0.1}


def test_without_any_word_the_stated_default_holds() -> None:
    assert draw_of(Energy(), 3) == Draw(idle_watts=IDLE_WATTS, busy_watts=BUSY_WATTS)


def test_a_workers_own_line_comes_before_its_machines_labels_and_those_before_the_job() -> None:
    energy = Energy(idle_watts=10.0, busy_watts=100.0, hour=1.0, kwh=0.3, workers=[Power(busy_watts=400.0), None])
    labels = labelled_power({"idle-watts": "20", "busy-watts": "200", "class": "fast"})
    assert draw_of(energy, 0, labels) == Draw(idle_watts=20.0, busy_watts=400.0, hour=1.0, kwh=0.3)
    assert draw_of(energy, 1, labels) == Draw(idle_watts=20.0, busy_watts=200.0, hour=1.0, kwh=0.3)
    assert draw_of(energy, 1, None) == Draw(idle_watts=10.0, busy_watts=100.0, hour=1.0, kwh=0.3)


def test_a_label_that_is_no_number_counts_as_none() -> None:
    assert labelled_power({"idle-watts": "low"}) is None
    assert labelled_power({"busy-watts": "nan"}) is None
    assert labelled_power({"idle-watts": "500", "busy-watts": "100", "hour-price": "2"}) == Power(hour=2.0)


def test_an_hour_at_a_kilowatt_is_a_kilowatt_hour() -> None:
    draw = Draw(idle_watts=200.0, busy_watts=1000.0, hour=2.0, kwh=0.25)
    assert draw.joules(3600.0, 3600.0) == 3.6e6
    assert draw.joules(0.0, 3600.0) == 0.2 * 3.6e6
    assert draw.cost(3.6e6, 3600.0) == pytest.approx(2.25)


def test_the_model_is_read_and_written() -> None:
    energy = {"kwh": 0.3, "workers": [{"idle_watts": 50.0, "busy_watts": 350.0, "hour": 2.0}, None, None, None]}
    spec = parse_spec(document(energy=energy))
    assert spec.energy.workers is not None
    assert parse_spec(spec_document(spec)) == spec


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"energy": {"workers": [None]}}, "energy.workers", "found '1 machines', expected one, or null, for each of"),
        ({"energy": {"idle_watts": 400.0}}, "energy", "busy_watts of at least idle_watts, which is 400 (found 300)"),
        ({"energy": {"kwh": -1.0}}, "energy.kwh", "expected `float` >= 0.0"),
        ({"energy": {"watts": 3.0}}, "energy.watts", "found 'watts'"),
    ],
)
def test_a_wrong_model_is_refused_with_its_field(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec(document(**changes))
    assert raised.value.field.startswith(field.split(".")[0])
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["lb-bsp-cpu", "lb-bsp-linear"])
def test_policies_that_predict_every_worker_take_an_objective(name: str) -> None:
    spec = validated_spec(document(synchronization={"batching": {"name": name, **ENERGY}}))
    assert spec.synchronization.batching.parameters == ENERGY


@pytest.mark.parametrize("launch", [{}, {"launch": "attached"}])
def test_an_attached_job_may_have_an_objective(launch: dict[str, str]) -> None:
    asked = {"name": "a", "workers": 2, "batch_size": 8, "energy": {"busy_watts": 100.0}, **launch}
    asked |= {} if launch else {"workload": "cnn", "stop": {"iterations": 9}}
    spec = validated_spec(asked | {"synchronization": {"batching": {"name": "lb-bsp-linear", **ENERGY}}})
    assert spec.energy.busy_watts == 100.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"batching": {"name": "lb-bsp-gpu", "objective": "energy"}},
            "objective is a parameter of lb-bsp-cpu, lb-bsp-federated",
        ),
        ({"batching": {"name": "lb-bsp-cpu", "objective": "power"}}, "one of cost, energy, time"),
        ({"batching": {"name": "lb-bsp-cpu", "slack": -0.1}}, ">= 0.0"),
        (
            {"batching": {"name": "lb-bsp-cpu", **ENERGY}, "barrier": {"name": "asp"}},
            "does not wait for them; use bsp, or objective time",
        ),
        ({"batching": {"name": "lb-bsp-cpu", **ENERGY}, "barrier": {"name": "backup"}}, "use bsp, or objective time"),
    ],
)
def test_an_objective_that_cannot_be_pursued_is_refused_with_the_cure(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        validated_spec(document(synchronization=changes))
    assert message in str(raised.value)


def test_an_autopilot_which_compares_times_is_refused_beside_it() -> None:
    asked = document(policy="auto", synchronization={"batching": {"name": "lb-bsp-cpu", **ENERGY}})
    with pytest.raises(SpecError) as raised:
        validated_spec(asked)
    assert raised.value.field == "autopilot"
    assert "the autopilot compares times" in str(raised.value)
