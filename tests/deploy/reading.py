"""Reads docker-compose.yml and Dockerfile as a container engine would."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


@cache
def compose() -> dict[str, Any]:
    """The parsed file, anchors resolved."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


@cache
def services() -> dict[str, dict[str, Any]]:
    """Each service by name."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def start_order(of: Mapping[str, dict[str, Any]] | None = None) -> list[str]:
    """Services, docker-compose.yml's unless others are given, so that each comes after those that it waits for."""
    graph = {name: set(service.get("depends_on", {})) for name, service in (of or services()).items()}
    return list(TopologicalSorter(graph).static_order())


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """What compose hands on: ``${NAME-default}`` filled in, ``$$`` as one dollar."""
    filled = re.sub(r"(?<!\$)\$\{(\w+)-([^}]*)\}", lambda found: variables.get(found[1], found[2]), text)
    return filled.replace("$$", "$")


def mounts(service: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Volume, path within it, and target of everything that the service has mounted."""
    found = []
    for each in service.get("volumes", []):
        if isinstance(each, str):
            volume, target, *_ = each.split(":")
            found.append((volume, "", target))
        else:
            found.append((each["source"], each.get("volume", {}).get("subpath", ""), each["target"]))
    return found


def parse_env(text: str) -> dict[str, str]:
    """An env file's variables."""
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a Dockerfile, continuation lines joined."""

    word: str
    rest: str


@cache
def stages() -> dict[str, list[Instruction]]:
    """Instructions by stage; a stage built on another of Paceline's has that one's first."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.split()
            current = found[name] = [*found.get(base, [])]
        else:
            current.append(Instruction(word, rest.strip()))
    return found


def copied(stage: str) -> list[tuple[Path, Path]]:
    """(source in the checkout, destination under /app) of every COPY."""
    pairs = [shlex.split(step.rest) for step in stages()[stage] if step.word == "COPY"]
    return [
        (ROOT / source, Path(source) if destination == "./" else Path(destination)) for source, destination in pairs
    ]


def environment_of(stage: str) -> dict[str, str]:
    """What ENV sets."""
    pairs = (word.split("=", 1) for step in stages()[stage] if step.word == "ENV" for word in shlex.split(step.rest))
    return dict(pairs)


def entrypoint(stage: str) -> list[str]:
    """The image's entry point; commands are its arguments."""
    found = [json.loads(step.rest) for step in stages()[stage] if step.word == "ENTRYPOINT"]
    return found[-1] if found else []
