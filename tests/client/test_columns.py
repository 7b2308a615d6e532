"""Measurements as columns."""

import sys

import pytest

from paceline.client.columns import Metrics, Series, from_csv
from paceline.errors import NeedsLibrary


def metrics() -> Metrics:
    series = [
        Series(metric="loss", worker=0, iterations=[0, 1], values=[0.5, 0.25]),
        Series(metric="loss", worker=1, iterations=[1], values=[0.75]),
        Series(metric="accuracy", iterations=[1], values=[0.9]),
    ]
    return Metrics(job=1, series=series)


def test_series_become_rows_of_iterations_and_workers() -> None:
    assert dict(metrics().columns()) == {
        "iteration": [0, 1, 1, 1],
        "worker": [0, None, 0, 1],
        "loss": [0.5, None, 0.25, 0.75],
        "accuracy": [None, 0.9, None, None],
    }


def test_a_file_of_measurements_becomes_columns() -> None:
    found = from_csv(["iteration,worker,loss,note", "0,1,0.5,a", "1,0,,b", ""])
    assert dict(found) == {"iteration": [0, 1], "worker": [1, 0], "loss": [0.5, None], "note": ["a", "b"]}
    assert repr(found) == "<Columns iteration, worker, loss, note: 2 rows>"
    assert dict(from_csv(["iteration,worker"])) == {"iteration": [], "worker": []}


def test_a_frame_needs_pandas_and_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NeedsLibrary, match=r"^a DataFrame: needs pandas, .* pip install pandas$"):
        metrics().frame()


def test_a_frame_has_the_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = metrics().frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["iteration"]) == [0, 1, 1, 1]
