"""``paceline ray``: what is refused before Ray is asked, and how agents join."""

import msgspec
import pytest

from paceline.cli import main as command
from paceline.cli.delegated import Extra
from paceline.on_ray.plan import Plan

PLAN = Plan(name="ray", url="http://127.0.0.1:8000", enrolment="secret", agents=2, most=4, api_token="secret")


def value(plan: Plan, option: str, **variables: str) -> str:
    """The last value of an option with which the first agent joins on a node with these variables."""
    words = plan.command(0, host="10.0.0.3", node="0123456789abcdef", variables=variables)
    return words[len(words) - words[::-1].index(option)]


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
    words = plan.command(1, host="10.0.0.3", node="0123456789abcdef", variables={"PACELINE_STATE_DIR": "/s"})
    assert words[words.index("--name") + 1] == "a-1"
    assert words[words.index("--host") + 1] == "10.0.0.3"
    assert words[words.index("--label") + 1] == "ray-node=0123456789ab"
    assert words[words.index("--emulate") + 1] == "x3"
    assert words[-4:-1] == ["--device", "cpu", "--state-dir"]
    assert "secret" not in " ".join(words)


def test_an_agent_finds_no_credential_of_an_earlier_fleet() -> None:
    again = msgspec.structs.replace(PLAN, enrolment="another secret")
    first, second = (value(plan, "--state-dir", PACELINE_STATE_DIR="/s") for plan in (PLAN, again))
    assert (first[:7], second[:7], first != second) == ("/s/ray-", "/s/ray-", True)
    assert value(PLAN, "--state-dir", PACELINE_STATE_DIR="/s") == first


@pytest.mark.parametrize(
    ("extra", "variables", "root"),
    [
        ((), {"PACELINE_STATE_DIR": "/s", "XDG_STATE_HOME": "/x"}, "/s"),
        ((), {"XDG_STATE_HOME": "/x"}, "/x/paceline"),
        (("--state-dir", "/a", "--allow-code"), {"PACELINE_STATE_DIR": "/s"}, "/a"),
        (("--state-dir", "/a", "--state-dir=/b"), {}, "/b"),
    ],
)
def test_the_state_of_a_fleet_is_in_the_folder_that_join_would_use(
    extra: tuple[str, ...], variables: dict[str, str], root: str
) -> None:
    plan = msgspec.structs.replace(PLAN, extra=list(extra))
    assert value(plan, "--state-dir", **variables).rpartition("/")[0] == root
    assert value(plan, "--checkpoint-dir", **variables) == f"{root}/checkpoints"


def test_checkpoints_are_where_the_node_or_the_user_keeps_them() -> None:
    plan = msgspec.structs.replace(PLAN, extra=["--checkpoint-dir", "/a"])
    assert value(PLAN, "--checkpoint-dir", PACELINE_CHECKPOINT_DIR="/c") == "/c"
    assert value(plan, "--checkpoint-dir", PACELINE_CHECKPOINT_DIR="/c") == "/a"
