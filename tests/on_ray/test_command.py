"""``paceline ray``: what is refused before Ray is asked, and how agents join."""

import pytest

from paceline.cli import main as command
from paceline.cli.delegated import Extra
from paceline.on_ray.plan import Plan

PLAN = Plan(name="ray", url="http://127.0.0.1:8000", enrolment="secret", agents=2, most=4, api_token="secret")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        command.main(["ray", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_without_ray_the_command_reports_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.ray.RAY", Extra("ray", ("no_such_module",)))
    said = refused(capsys, "status")
    assert said.startswith("paceline ray: found no Ray in this environment (")
    assert said.endswith("install it: pip install 'paceline[ray]'\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--agents", "0"), "--agents: found '0', expected a whole number from 1 to 1,000"),
        (("--cpus", "many"), "--cpus: found 'many', expected a number from 0 to 10,000"),
        (("--idle", "5"), "--idle: found '5', expected a number and s, m, h or d"),
        (("--name", "my ray"), "--name: found 'my ray', expected up to 40 lower-case letters"),
        (("--runtime-env", "pip"), "--runtime-env: found 'pip', expected a JSON object"),
        (("--label", "pool"), "--label: found 'pool', expected key=value"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_expected(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, "up", *arguments)


def test_a_plan_shows_no_secret() -> None:
    assert "secret" not in repr(PLAN)


def test_agents_share_a_placement_group_but_for_those_that_come_later() -> None:
    assert [PLAN.group(index) for index in range(4)] == [
        "paceline/ray/agents",
        "paceline/ray/agents",
        "paceline/ray/2",
        "paceline/ray/3",
    ]
    assert [PLAN.bundle_index(index) for index in range(4)] == [0, 1, 0, 0]


def test_an_agent_joins_by_its_place_in_the_fleet_and_listens_at_its_node() -> None:
    plan = Plan(
        name="a",
        url="https://x",
        enrolment="secret",
        agents=2,
        most=2,
        speeds=["1000", "x3"],
        extra=["--device", "cpu"],
    )
    words = plan.command(1, host="10.0.0.3", node="0123456789abcdef")
    assert words[words.index("--name") + 1] == "a-1"
    assert words[words.index("--host") + 1] == "10.0.0.3"
    assert words[words.index("--label") + 1] == "ray-node=0123456789ab"
    assert words[words.index("--emulate") + 1] == "x3"
    assert words[-2:] == ["--device", "cpu"]
    assert "secret" not in words
