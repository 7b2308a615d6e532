"""Specs of attached jobs: what they need not say, and what has no place in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs.validation import validated_spec
from controlplane.protocol.codec import encode, to_agent
from controlplane.protocol.launching import REFUSED
from controlplane.protocol.orders import AgentOrders, ProcessOrder, Script
from controlplane.protocol.spec import JobSpec, SpecError, parse_spec, spec_document

ATTACHED = {"name": "mine", "launch": "attached", "workers": 4, "batch_size": 64}
NATIVE = {"name": "ours", "workload": "softmax-regression", "workers": 4, "batch_size": 64, "stop": {"iterations": 9}}


def test_a_name_workers_and_a_batch_size_are_enough() -> None:
    spec = parse_spec(ATTACHED)
    assert (spec.attached, spec.servers, spec.reduces, spec.global_batch) == (True, 0, True, 256)
    assert (spec.workload.name, spec.workload.dataset, spec.wait_s) == ("attached", "none", 3600.0)


@pytest.mark.parametrize("document", [{}, {"sample_multiple": 8}, {"limits": {"minimum": 12, "maximum": 40}}])
def test_a_name_alone_is_enough_where_the_ranks_report_the_rest(document: dict[str, Any]) -> None:
    spec = parse_spec({"name": "mine", "launch": "attached", **document})
    assert spec.workers == 1
    assert parse_spec(spec_document(spec)) == spec


def test_a_workload_is_a_name_for_people() -> None:
    assert parse_spec({**ATTACHED, "workload": "resnet50"}).workload.name == "resnet50"


@given(
    multiple=st.sampled_from([1, 2, 4, 8, 64]),
    wait_s=st.floats(1, 1e7),
    batching=st.sampled_from(["uniform", "lb-bsp-cpu", "lb-bsp-gpu", "lb-bsp-linear"]),
    stop=st.none() | st.integers(1, 10**9),
)
def test_what_is_written_reads_back_to_the_same_spec(
    multiple: int, wait_s: float, batching: str, stop: int | None
) -> None:
    document = {
        **ATTACHED,
        "sample_multiple": multiple,
        "wait_s": wait_s,
        "synchronization": {"batching": batching},
        "stop": {"iterations": stop},
    }
    spec = parse_spec(document)
    assert parse_spec(spec_document(spec)) == spec


OTHERWISE: dict[str, Any] = {
    "servers": 2,
    "communication": "servers",
    "server_mode": "aggregating",
    "optimizer": {"name": "adam"},
    "aggregation": "naive",
    "federated": {"local_steps": 2},
    "evaluate": {"every": 5},
    "elastic": {"restarts": 1},
    "checkpoint": {"every": 10},
    "start_from": {"job": 3},
    "on_nan": "skip",
    "emulate": [None, None, None, None],
    "emulate_servers": [],
}


def test_every_refused_field_is_tried() -> None:
    assert set(OTHERWISE) == set(REFUSED)
    assert set(REFUSED) <= set(JobSpec.__struct_fields__)


@pytest.mark.parametrize("field", OTHERWISE)
def test_a_field_that_is_the_scripts_is_refused_with_the_cure(field: str) -> None:
    with pytest.raises(SpecError) as refusal:
        parse_spec({**ATTACHED, field: OTHERWISE[field]})
    assert refusal.value.field == field
    assert "launch attached" in refusal.value.expected
    assert "leave it out" in refusal.value.expected


@pytest.mark.parametrize(
    ("question", "name"), [("barrier", "asp"), ("barrier", "aggressive"), ("placement", "psld"), ("data", "rotation")]
)
def test_choices_that_need_our_servers_or_loop_are_refused(question: str, name: str) -> None:
    with pytest.raises(SpecError, match=f"for {name} use launch: native") as refusal:
        validated_spec({**ATTACHED, "synchronization": {question: name}})
    assert refusal.value.field == f"synchronization.{question}.name"


@pytest.mark.parametrize("name", ["deadline", "lb-bsp-federated"])
def test_batching_that_cuts_work_or_is_for_federations_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="use launch: native"):
        validated_spec({**ATTACHED, "synchronization": {"batching": name}})


@pytest.mark.parametrize("part", ["options", "data"])
def test_a_workload_has_no_options_that_no_one_reads(part: str) -> None:
    with pytest.raises(SpecError, match="the script's; leave it out"):
        parse_spec({**ATTACHED, "workload": {"name": "mine", part: {"width": 3}}})


def test_the_precision_of_a_script_is_its_own() -> None:
    with pytest.raises(SpecError, match=r"workload.precision: found 'bf16', expected none with launch attached"):
        parse_spec({**ATTACHED, "workload": {"name": "mine", "precision": "bf16"}})


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"sample_multiple": 7}, "sample_multiple"),
        ({"sample_multiple": 8, "limits": {"minimum": 12}}, "limits.minimum"),
        ({"sample_multiple": 8, "limits": {"maximum": 100}}, "limits.maximum"),
        ({"wait_s": 0}, "wait_s"),
        ({"launch": "torchrun"}, "launch"),
    ],
)
def test_what_cannot_be_is_refused_naming_the_field(document: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as refusal:
        parse_spec({**ATTACHED, **document})
    assert refusal.value.field == field


COMMAND = ["python", "train.py", "--epochs", "5"]


def test_a_command_is_started_by_agents_on_slots() -> None:
    spec = parse_spec({**ATTACHED, "command": COMMAND, "labels": {"gpu": "a100"}})
    assert (spec.command, spec.takes_slots, spec.elastic.restarts) == (COMMAND, True, 0)
    assert parse_spec(spec_document(spec)) == spec
    assert not parse_spec(ATTACHED).takes_slots


@pytest.mark.parametrize("elastic", [{"restarts": 2}, {}])
def test_a_command_may_be_restarted(elastic: dict[str, Any]) -> None:
    spec = parse_spec({**ATTACHED, "command": COMMAND, "elastic": elastic})
    assert spec.elastic.restarts == elastic.get("restarts", 0)
    assert parse_spec(spec_document(spec)) == spec


@pytest.mark.parametrize(
    ("document", "field", "expected"),
    [
        ({"command": "python train.py"}, "command", r"a list of arguments, such as \[python, .*: no shell reads it"),
        ({"command": []}, "command", "a program and its arguments, such as"),
        ({"command": [""]}, "command", "a program and its arguments, such as"),
        ({"command": ["python", 5]}, "command[1]", "str"),
        ({"command": ["a\0b"]}, "command[0]", "text without NULs"),
        ({"command": ["x"] * 201}, "command", "length <= 200"),
        ({"command": COMMAND, "lease_s": 30.0}, "lease_s", "none with a command: .*; leave it out"),
        ({"command": COMMAND, "elastic": {"minimum_workers": 2}}, "elastic", "restarts alone, with a command"),
        ({"command": COMMAND, "servers": 2}, "servers", "0 with launch attached"),
    ],
)
def test_a_command_that_cannot_be_is_refused_with_the_cure(document: dict[str, Any], field: str, expected: str) -> None:
    with pytest.raises(SpecError, match=expected) as refusal:
        parse_spec({**ATTACHED, **document})
    assert refusal.value.field == field


def test_a_native_job_has_no_command() -> None:
    with pytest.raises(
        SpecError, match=r"none with launch native: .*; leave it out, or use launch: attached"
    ) as refusal:
        parse_spec({**NATIVE, "command": COMMAND})
    assert (refusal.value.field, refusal.value.found) == ("command", COMMAND)


def test_an_order_of_a_script_reads_back_to_the_same_order() -> None:
    spec = parse_spec({**ATTACHED, "command": COMMAND})
    script = Script(world=4, slots=[2, 3], address="10.0.0.1", attempt=2, port=20_007, token="plj_" + "5e" * 32)
    order = ProcessOrder(
        job=7, role="worker", index=1, instance="w1.0.2", slot=3, key="5e" * 32, spec=spec, script=script
    )
    orders = AgentOrders(sequence=1, processes=[order])
    assert to_agent.decode(encode(orders)) == orders


@pytest.mark.parametrize("document", [{"sample_multiple": 2}, {"wait_s": 5.0}])
def test_a_native_job_has_no_fields_of_attached_ones(document: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="none with launch native"):
        parse_spec({**NATIVE, **document})


def test_a_native_job_still_needs_a_workload_and_an_end() -> None:
    with pytest.raises(SpecError, match="workload"):
        parse_spec({key: value for key, value in NATIVE.items() if key != "workload"})
    with pytest.raises(SpecError, match="stop"):
        parse_spec({key: value for key, value in NATIVE.items() if key != "stop"})
