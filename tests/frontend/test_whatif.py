"""The tab of what else a job could do: what was played last, or why nothing was, and predictors side by side."""

import json

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs.models import Job
from controlplane.runtime import names
from controlplane.runtime.models import Forecast
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Simulation
from frontend.build import build_figure, figure_etag
from frontend.figures.points import plain
from frontend.figures.rows import Other, Others, View
from frontend.figures.whatif import machine_changes
from frontend.queries.whatif import others, predictor_scores, predictors
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def played() -> Job:
    return factories.played_job()


def test_the_best_way_comes_first_with_its_uncertainty(viewer: Client, played: Job) -> None:
    page = text_of(viewer, f"/jobs/{played.pk}/?tab=whatif")
    assert "without w3 70 ms 10% 100% 30.0% 25.0% to 35.0%" in page
    assert "asp 90 ms 10% 100% not finished" in page
    assert "The model error on the recorded iterations is 4.0%" in page
    assert others(played, View()).doubt == pytest.approx(0.04)


def test_a_way_that_leaves_work_out_is_not_the_best(played: Job) -> None:
    less = factories.alternative("backup", 0.5) | {"samples": 0.5}
    Forecast.objects.update(
        answer=Forecast.objects.get().answer | {"alternatives": [less, factories.alternative("ssp", 0.1)]}
    )
    best = others(played, View()).best
    assert best is not None
    assert best.name == "ssp"
    figure = json.loads(build_figure("others", played, {}))
    assert figure["data"][0]["y"] == ["backup (50% of the samples)", "ssp"]
    assert figure["layout"]["meta"]["caption"].startswith("Best: ssp, which would save 10% of the time")


def test_predictors_are_compared_and_only_operators_may_promote_one(
    viewer: Client, operator: Client, played: Job
) -> None:
    assert [(each.name, each.acting) for each in predictor_scores(played)] == [("narx", False), ("ema", True)]
    path = f"/jobs/{played.pk}/?tab=whatif"
    assert "Promote" not in text_of(viewer, path)
    page = operator.get(path).content.decode()
    assert f'data-ask="Promote narx in job #{played.pk}?"' in page
    assert "<dialog" not in operator.get(f"/jobs/{played.pk}/live/?tab=whatif").content.decode()
    assert "Let ema decide?" not in text_of(operator, path)
    found = predictors(played, View())
    assert (found.iteration.tolist(), found.errors["narx"].tolist(), found.acting) == ([20, 40], [0.2, 0.03], "ema")


def test_a_predictor_that_was_adopted_decides(played: Job) -> None:
    factories.make_decision(played, 200, "adopt-predictor", {"acting": "narx"})
    assert [each.name for each in predictor_scores(played) if each.acting] == ["narx"]


def test_the_figure_moves_when_the_job_was_played_again(played: Job) -> None:
    before = figure_etag("others", played, {})
    assert json.loads(build_figure("others", played, {}))["data"][0]["y"] == ["lb-bsp-linear", "backup"]
    changes = figure_etag("machine-changes", played, {})
    Forecast.objects.update(made_at=timezone.now())
    assert figure_etag("others", played, {}) != before
    assert figure_etag("machine-changes", played, {}) != changes


def test_changes_of_machines_are_sorted_by_importance(played: Job) -> None:
    figure = json.loads(build_figure("machine-changes", played, {}))
    names = ["without w0", "without w3", "one more like w0", "twice the bandwidth"]
    assert figure["data"][0]["y"] == names
    assert plain(figure["data"][0]["x"]) == [-40.0, 30.0, 24.0, 6.0]
    assert len(set(figure["data"][0]["marker"]["color"])) == 2
    assert figure["layout"]["meta"]["caption"].startswith("Without w0 would cost 40% of the time.")


@given(st.lists(st.floats(-0.9, 0.9), min_size=1, max_size=12))
def test_a_tornado_narrows_downwards(saved: list[float]) -> None:
    found = [
        Other(
            name=f"without w{rank}",
            iteration_s=0.1,
            waiting=0.0,
            saved=each,
            low=each,
            high=each,
            samples=1.0,
            unfinished=False,
            kind="machines",
        )
        for rank, each in enumerate(saved)
    ]
    figure = machine_changes(Others(ways=tuple(found), now=None, doubt=0.0, reason=""), View())
    lengths = [abs(each) for each in plain(figure["data"][0]["x"])]
    assert lengths == sorted(lengths, reverse=True)


def test_what_an_earlier_release_played_is_distinguished_by_its_name(played: Job) -> None:
    old = [factories.alternative("without w1", 0.1), factories.alternative("ssp", 0.1)]
    Forecast.objects.update(answer=Forecast.objects.get().answer | {"alternatives": old})
    assert [way.kind for way in others(played, View()).ways] == ["machines", "policy"]


def test_a_simulated_run_reports_that_it_is_played_on_its_scenario(viewer: Client, played: Job) -> None:
    assert "Machine models are fitted on the last 180 s" in text_of(viewer, f"/jobs/{played.pk}/?tab=whatif")
    Job.objects.update(simulation=Simulation.objects.create(scenario="demo", policies=["bsp"], seed=1))
    assert "Simulated on the machines of its scenario" in text_of(viewer, f"/jobs/{played.pk}/?tab=whatif")


def test_while_nothing_was_played_it_reports_why(viewer: Client) -> None:
    job = factories.demo_job()
    path = f"/jobs/{job.pk}/?tab=whatif"
    assert "being simulated in the background" in text_of(viewer, path)
    Forecast.objects.create(job=job, reason="w2 has 3 iterations", made_at=timezone.now())
    assert "The simulation failed: w2 has 3 iterations." in text_of(viewer, path)


def test_who_looks_has_it_played(viewer: Client, redis_url: str) -> None:
    job = factories.demo_job()
    viewer.get(f"/jobs/{job.pk}/")
    assert shared().zrange(names.FORECASTS_WANTED, 0, -1) == []
    viewer.get(f"/jobs/{job.pk}/?tab=whatif")
    assert shared().zrange(names.FORECASTS_WANTED, 0, -1) == [str(job.pk).encode()]
