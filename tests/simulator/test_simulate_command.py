import gc
import io
import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError


def simulate(*arguments: str) -> str:
    out = io.StringIO()
    call_command("simulate", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_without_a_name_it_lists_the_scenarios() -> None:
    assert "lb-bsp-four-gpus  " in simulate()
    assert {
        "name": "demo",
        "title": "The demo's four machines",
        "policies": ["bsp", "lb-bsp-cpu", "lb-bsp-linear"],
    } in (json.loads(simulate("--json")))


def test_it_shows_every_policy_in_a_table() -> None:
    table = simulate("demo", "--policies", "bsp,lb-bsp-cpu")
    assert "256 ms" in table
    assert "94 ms" in table
    assert "lb-bsp-linear" not in table


def test_it_prints_one_document_that_a_seed_decides() -> None:
    first, again, other = (
        json.loads(
            simulate("psld-alexnet-8", "--policies", "mxnet,proportional+lb-bsp-linear", "--seed", seed, "--json")
        )
        for seed in ("3", "3", "4")
    )
    assert first == again != other
    assert [outcome["policy"] for outcome in first["outcomes"]] == ["mxnet", "proportional+lb-bsp-linear"]
    assert first["paper"][0]["here"] is None


def test_it_plays_a_scenario_on_other_machines() -> None:
    changed = "--workers", "3", "--global-batch", "510"
    (outcome,) = json.loads(simulate("demo", "--policies", "bsp", *changed, "--json"))["outcomes"]
    assert (outcome["shares"], outcome["iterations"]) == ([170, 170, 170], 100)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dem"], "scenario: found 'dem', .* close to it: demo"),
        (["demo", "--trace", "/gone.csv"], r"/gone\.csv: cannot be read \(No such file or directory\)"),
        (["demo", "--bandwidth", "2"], "bandwidth: found 2.0, expected none"),
        (["demo", "--policies", "bsp,fastest"], "policies: found 'fastest', expected one of bsp, lb-bsp-cpu"),
    ],
)
def test_what_is_refused_ends_with_2_and_a_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence) as refused:
        simulate(*arguments)
    assert refused.value.returncode == 2


def test_the_collector_looks_as_often_afterwards_as_before() -> None:
    usual = gc.get_threshold()
    simulate("demo", "--policies", "bsp")
    with pytest.raises(CommandError):
        simulate("demo", "--policies", "fastest")
    assert gc.get_threshold() == usual
