"""What the wheel asks for: ranges around the versions that the tests run with, and nothing that is not there."""

import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from controlplane.protocol import RELEASE
from tests.architecture.sources import INSTALLED, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
BASE: list[str] = PROJECT["project"]["dependencies"]
FILES = {
    "agent": ["requirements/agent.txt"],
    "ray": ["requirements/ray.txt"],
    "server": ["requirements/controlplane.txt", "requirements.txt"],
    "tracing": ["requirements/tracing.txt"],
}
"""Which files `make` installs for the same purpose."""


def pinned(*files: str) -> Iterator[Requirement]:
    for file in files:
        for line in (ROOT / file).read_text().splitlines():
            if line and not line.startswith(("#", "-")):
                yield Requirement(line)


def named(requirements: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(found.name): found for found in map(Requirement, requirements)}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_requires_what_make_installs(extra: str) -> None:
    asked = named([*EXTRAS[extra], *BASE])
    there = {canonicalize_name(pin.name): pin for pin in pinned(*FILES[extra])}
    needed = named(EXTRAS[extra])
    assert needed.keys() <= there.keys()
    assert there.keys() <= asked.keys()
    for name, pin in there.items():
        (version,) = (each.version for each in pin.specifier)
        assert asked[name].specifier.contains(version), f"{asked[name]} leaves out {version}, which is tested"
        assert asked[name].extras == pin.extras
        assert asked[name].marker == pin.marker


def test_what_a_training_script_gets_is_three_libraries() -> None:
    assert named(BASE).keys() == {"httpx", "msgspec", "websockets"}


def test_the_wheel_has_our_packages_and_the_release_of_the_protocol() -> None:
    hatch = PROJECT["tool"]["hatch"]
    assert set(hatch["build"]["targets"]["wheel"]["packages"]) == set(INSTALLED)
    found = re.search(hatch["version"]["pattern"], (ROOT / hatch["version"]["path"]).read_text())
    assert found is not None
    assert found["version"] == RELEASE
