"""The options of the commands for clusters are those in their tables in docs/clusters.md."""

import argparse
import re

import pytest

from paceline.cli import ray
from paceline.cli.slurm import command as slurm
from tests.architecture.sources import ROOT


def options_of(parser: argparse.ArgumentParser, *names: str) -> set[str]:
    """The long options of a subcommand."""
    for name in names:
        (parts,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parser = parts.choices[name]
    found = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    return found - {"--help"}


def documented(section: str) -> set[str]:
    """The options in the first columns of the tables of a section."""
    page = (ROOT / "docs" / "clusters.md").read_text()
    (text,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    cells = re.findall(r"^\| (`--.*?`) \|", text, re.MULTILINE)
    return {option for cell in cells for option in re.findall(r"`(--[a-z-]+)", cell)}


@pytest.mark.parametrize(("section", "names"), [("Ray", ("ray", "up")), ("Slurm", ("slurm", "submit"))])
def test_the_tables_have_every_option_and_no_other(section: str, names: tuple[str, str]) -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    ray.add_command(commands)
    slurm.add_command(commands)
    assert documented(section) == options_of(parser, *names)
