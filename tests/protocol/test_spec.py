"""A user's document becomes a spec, or an error that names the field, what was found and what is allowed."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs.validation import validated_spec
from controlplane.protocol.spec import Choice, SpecError, parse_spec, spec_document

FROM_THE_DESIGN = """
name: digits
workload: {name: softmax-regression, dataset: digits}
workers: 4
servers: 2
batch_size: 64
synchronization:
  batching: {name: lb-bsp-cpu, predictor: narx}
  barrier: {name: bsp}
  placement: {name: psld, epsilon: 0.1}
  data: {name: shared}
optimizer: {name: sgd, lr: 0.1}
evaluate: {every: 20}
stop: {iterations: 400, accuracy: 0.95, seconds: 120}
seed: 7
"""


def document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "digits",
        "workload": "softmax-regression",
        "workers": 4,
        "batch_size": 64,
        "stop": {"iterations": 10},
    } | changes


def test_the_design_s_example_is_read_whole():
    spec = parse_spec(yaml.safe_load(FROM_THE_DESIGN))
    assert (spec.workers, spec.servers, spec.global_batch, spec.seed) == (4, 2, 256, 7)
    assert spec.synchronization.batching == Choice(name="lb-bsp-cpu", parameters={"predictor": "narx"})
    assert spec.synchronization.placement == Choice(name="psld", parameters={"epsilon": 0.1})
    assert (spec.stop.iterations, spec.stop.accuracy, spec.stop.seconds) == (400, 0.95, 120)


def test_written_spec_reads_back_equal():
    spec = parse_spec(yaml.safe_load(FROM_THE_DESIGN))
    assert parse_spec(spec_document(spec)) == spec


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"workers": 0}, "workers", "found 0, expected `int` >= 1"),
        ({"workers": "four"}, "workers", "found 'four', expected `int`, got `str`"),
        ({"workers": True}, "workers", "found True, expected `int`, got `bool`"),
        ({"batch_size": 9 * 10**18}, "batch_size", "expected `int` <= 1000000"),
        ({"batch_size": 10**6, "workers": 4_000}, "batch_size", "expected at most 500000 for 4000 workers"),
        ({"seed": 2**63}, "seed", "expected `int` <= 9223372036854775807"),
        ({"optimizer": {"lr": 1e300}}, "optimizer.lr", "expected `float` <= 1000000.0"),
        ({"batch_size": None}, "batch_size", "found None, expected `int`, got `null`"),
        ({"wrkers": 4}, "wrkers", "found 'wrkers', expected no field of that name, but one of name, workload, "),
        (
            {"stop": {"iteration": 4}},
            "stop.iteration",
            "no field of that name, but one of iterations, accuracy, seconds",
        ),
        ({"stop": {}}, "stop", "expected at least one of iterations, accuracy and seconds"),
        ({"stop": {"accuracy": 95}}, "stop.accuracy", "found 95, expected `float` <= 1.0"),
        ({"optimizer": {"lr": 0}}, "optimizer.lr", "found 0, expected `float` > 0.0"),
        ({"synchronization": {"batching": {"predictor": "ema"}}}, "synchronization.batching.name", "is required"),
        ({"synchronization": {"batching": 3}}, "synchronization.batching", "found 3, expected `object`, got `int`"),
        ({"emulate": [{"samples_per_second": 5}]}, "emulate", "found '1 machines', expected one for each of the 4"),
        ({"limits": {"minimum": 65}}, "limits.minimum", "found 65, expected at most batch_size, which is 64"),
        ({"limits": {"maximum": 63}}, "limits.maximum", "found 63, expected at least batch_size, which is 64"),
    ],
)
def test_wrong_field_is_named_with_what_was_found_and_what_is_allowed(changes, field, message):
    with pytest.raises(SpecError) as caught:
        parse_spec(document(**changes))
    assert caught.value.field == field
    assert message in str(caught.value)


def test_missing_field_is_named():
    incomplete = document()
    del incomplete["batch_size"]
    with pytest.raises(SpecError, match="batch_size: found None, expected a value: the field is required"):
        parse_spec(incomplete)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    [*document(), "synchronization", "servers", "optimizer", "evaluate", "emulate", "labels", "seed"]
)


@given(json_values)
def test_any_document_is_a_spec_or_a_spec_error(value):
    with pytest.raises(SpecError):
        parse_spec(value)


@given(fields, json_values)
def test_any_value_in_any_field_is_a_spec_or_a_spec_error(field, value):
    try:
        spec = parse_spec(document(**{field: value}))
    except SpecError:
        return
    assert parse_spec(spec_document(spec)) == spec


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "elastic.restarts"),
        ({"synchronization": {"barrier": "asp"}, "elastic": {"restarts": 0}}, "synchronization.barrier.name"),
        ({"checkpoint": {"every": 5}, "federated": {"local_steps": 2}}, "federated"),
        ({"elastic": {"restarts": 0, "minimum_workers": 1}}, "elastic.minimum_workers"),
    ],
)
def test_servers_that_only_add_up_cannot_do_what_needs_parameters(changes: dict[str, Any], field: str) -> None:
    base = {"name": "d", "workload": "softmax-regression", "workers": 2, "batch_size": 8, "stop": {"iterations": 5}}
    with pytest.raises(SpecError) as raised:
        validated_spec(base | {"server_mode": "aggregating"} | changes)
    assert raised.value.field == field
    assert "aggregating" in raised.value.expected
