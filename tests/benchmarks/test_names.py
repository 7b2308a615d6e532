"""Benchmarks can be run by their names."""

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

from benchmarks.command import MEASURED, STANDALONE, module_of
from benchmarks.training import suite
from controlplane.runtime.management.commands.bench import Command


@pytest.mark.parametrize("name", STANDALONE)
def test_every_name_is_a_module_that_can_be_run(name: str) -> None:
    assert callable(import_module(module_of(name)).main)


@pytest.mark.parametrize("name", MEASURED)
def test_every_name_is_a_module_with_a_run_and_a_table(name: str) -> None:
    module = import_module(module_of(name))
    assert callable(module.run)
    assert callable(module.table)


def test_every_experiment_is_a_module_that_can_be_run() -> None:
    modules = {named.partition(":")[0] for named in suite.EXPERIMENTS.values()}
    assert all(callable(import_module(module).main) for module in modules)


def test_an_unknown_experiment_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(["sorting"]) == 2
    assert "training: found sorting, expected one of a-bsp, lb-bsp, lb-bsp-shared, psld, psp" in capsys.readouterr().err


def test_without_a_name_all_experiments_are_run_and_one_that_misses_its_bar_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run: list[str] = []

    class Experiments:
        @staticmethod
        def main(arguments: list[str]) -> int:
            run.append(" ".join(arguments) or "psld")
            return int(run[-1] == "lb-bsp")

    monkeypatch.setattr(suite, "import_module", lambda name: Experiments)
    assert suite.main([]) == 1
    assert run == list(suite.EXPERIMENTS)


def test_help_names_the_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.main(["--help"]) == 0
    assert "a-bsp|lb-bsp|lb-bsp-shared|psld|psp" in capsys.readouterr().out


def test_the_command_hands_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[list[str]] = []

    def note(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        run.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", note)
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "bench", "prediction-cost", "--workers", "2"])
    assert (ended.value.code, run) == (
        3,
        [[sys.executable, "-m", "benchmarks.offline.prediction_cost", "--workers", "2"]],
    )
