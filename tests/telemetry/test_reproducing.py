"""Runs of a paper are spread over processes, and are the same as one after another."""

import io
import multiprocessing
from pathlib import Path

import msgspec
import pytest

from controlplane.simulator.reproduction.claims import Run, runs_of
from controlplane.simulator.reproduction.papers import PAPERS
from controlplane.telemetry import reproducing
from controlplane.telemetry.code_digest import LIVE, SIMULATED, digest_of_code
from controlplane.telemetry.reproducing import WORTH_A_PROCESS, Key, play_all
from tests.simulator.reproduction.support import results


def cheapest() -> Run:
    """The run that takes the least time."""
    cost_s = results().cost_s
    runs = runs_of([claim for _, claims in PAPERS.values() for claim in claims])
    return min(runs, key=lambda run: (cost_s[run.scenario], run.to_target))


def test_runs_are_spread_over_processes_with_the_results_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[Key] = [(cheapest(), seed) for seed in range(2 * WORTH_A_PROCESS)]
    started: list[int] = []
    spawn = multiprocessing.get_context("spawn")

    class Context:
        def Pool(self, processes, **options):  # type: ignore[no-untyped-def]  # noqa: N802
            started.append(processes)
            return spawn.Pool(processes, **options)

    monkeypatch.setattr(reproducing.multiprocessing, "get_context", lambda name: Context())
    several = play_all(keys, None, processes=64, stderr=io.StringIO(), silent=True)
    assert started == [2]
    one = play_all(keys, None, processes=1, stderr=io.StringIO(), silent=True)
    assert started == [2]

    def timeless(played):  # type: ignore[no-untyped-def]
        return {key: msgspec.structs.replace(each, cpu_s=0.0) for key, each in played.items()}

    assert timeless(several) == timeless(one)
    assert several.keys() == set(keys)


@pytest.mark.parametrize("sources", [SIMULATED, LIVE])
def test_the_digest_of_the_code_changes_with_what_figures_come_from(sources: tuple[str, ...], tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    module = f"{sources[-1]}/module.py"
    texts = "controlplane/simulator/reproduction/a_bsp.py"
    live = "controlplane/simulator/scenarios/live_psp.py"
    for root in (first, second, third):
        for path in (module, "controlplane/simulator/reproduction/measures.py", texts, live, "frontend/pages.py"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("a = 1\n")
    (second / texts).write_text("a = 2\n")
    (second / live).write_text("a = 2\n")
    (second / "frontend/pages.py").write_text("a = 2\n")
    (second / module).write_text('"""What it is for."""\n\na = (\n    1  # one\n)\n')
    (third / module).write_text("a = 2\n")
    assert digest_of_code(sources, second) == digest_of_code(sources, first)
    assert digest_of_code(sources, third) != digest_of_code(sources, first)


def test_a_change_of_a_measure_is_a_change_of_the_simulators_code(tmp_path: Path) -> None:
    measures = Path("controlplane/simulator/reproduction/measures.py")
    for root, text in (("first", "a = 1\n"), ("second", "a = 2\n")):
        (tmp_path / root / measures).parent.mkdir(parents=True)
        (tmp_path / root / measures).write_text(text)
    first, second = (digest_of_code(SIMULATED, tmp_path / root) for root in ("first", "second"))
    assert first != second
