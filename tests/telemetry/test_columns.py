"""Laws of chunks and rollups: whatever came in whatever order, they are what the rows are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from controlplane.telemetry.columns import (
    COLUMNS,
    MEASURES,
    ROLLED,
    STATISTICS,
    STRETCH,
    WIDTHS,
    Rows,
    decoded,
    decoded_rollup,
    empty_block,
    encoded,
    encoded_rollup,
    lay_over,
    rolled,
    rollup_header,
    rollups,
)

finite = st.floats(-1e9, 1e9, allow_nan=False)
done = st.tuples(st.integers(0, STRETCH - 1), st.integers(0, 3), finite, st.integers(0, 500))
"""One report of a worker: iteration, generation, loss, samples."""


def rows_of(reports: list[tuple[int, int, float, int]]) -> Rows:
    iteration, generation, loss, samples = (np.array(part) for part in zip(*reports, strict=True))
    columns: dict[str, Any] = {name: np.zeros(len(reports)) for name in COLUMNS}
    columns |= {"generation": generation, "loss": loss.astype(float), "samples": samples, "at_ms": iteration + 1}
    return Rows(rank=np.zeros(len(reports), np.int64), iteration=iteration, columns=columns)


def as_rows_have_it(reports: list[tuple[int, int, float, int]]) -> dict[int, tuple[int, float, int]]:
    """The reference: of one iteration the last row of the highest generation counts."""
    found: dict[int, tuple[int, float, int]] = {}
    for iteration, generation, loss, samples in reports:
        if iteration not in found or generation >= found[iteration][0]:
            found[iteration] = (generation, loss, samples)
    return found


def as_block_has_it(block: dict[str, Any]) -> dict[int, tuple[int, float, int]]:
    places = np.flatnonzero(block["generation"] != -1)
    return {int(k): (int(block["generation"][k]), float(block["loss"][k]), int(block["samples"][k])) for k in places}


@given(st.lists(done, min_size=1, max_size=60), st.lists(st.integers(0, 60), max_size=5), st.data())
def test_a_block_is_what_the_rows_are_however_they_are_cut_and_repeated(
    reports: list[tuple[int, int, float, int]], cuts: list[int], data: st.DataObject
) -> None:
    """Folding stops anywhere, through storage, and begins again from any earlier mark."""
    block, start = empty_block(COLUMNS), 0
    for end in sorted({min(cut, len(reports)) for cut in cuts} | {len(reports)}):
        again = data.draw(st.integers(0, start), label="begins again from")
        if reports[again:end]:
            lay_over(block, rows_of(reports[again:end]))
        block = {name: decoded(name, stored) for name, stored in encoded(block).items()}
        start = end
    assert as_block_has_it(block) == as_rows_have_it(reports)


@given(st.lists(done, min_size=1, max_size=60), st.sampled_from([1, 10, 100, 1000]))
def test_a_rollup_counts_sums_and_bounds_what_the_rows_have(
    reports: list[tuple[int, int, float, int]], width: int
) -> None:
    block = empty_block(COLUMNS)
    lay_over(block, rows_of(reports))
    table = decoded_rollup(encoded_rollup(rolled(block, width)))
    windows: dict[int, list[float]] = {}
    for iteration, (_, loss, _) in as_rows_have_it(reports).items():
        windows.setdefault(iteration // width, []).append(loss)
    for window in range(table.shape[2]):
        statistics = dict(zip(STATISTICS, table[ROLLED.index("loss"), :, window], strict=True))
        losses = windows.pop(window, [])
        assert statistics["count"] == len(losses)
        if losses:
            assert (statistics["min"], statistics["max"]) == (min(losses), max(losses))
            assert statistics["sum"] == pytest.approx(sum(losses), rel=1e-9, abs=1e-3)
    assert not windows


@given(st.lists(done, min_size=1, max_size=60))
def test_coarse_rollups_are_made_of_fine_ones(reports: list[tuple[int, int, float, int]]) -> None:
    block = empty_block(COLUMNS)
    lay_over(block, rows_of(reports))
    fine, coarse = rolled(block, 10), rolled(block, 100)
    parts = fine.reshape(*fine.shape[:2], 10, 10)
    assert np.array_equal(parts[:, 0].sum(axis=2), coarse[:, 0])
    assert np.allclose(parts[:, 1].sum(axis=2), coarse[:, 1], rtol=1e-9, atol=1e-3)
    assert np.array_equal(np.fmin.reduce(parts[:, 2], axis=2), coarse[:, 2], equal_nan=True)
    assert np.array_equal(np.fmax.reduce(parts[:, 3], axis=2), coarse[:, 3], equal_nan=True)


@given(st.lists(done, max_size=60), st.sets(st.sampled_from(sorted(set(MEASURES) - {"loss"}))))
def test_columns_without_values_need_not_be_rolled_up(
    reports: list[tuple[int, int, float, int]], known: set[str]
) -> None:
    block = empty_block(COLUMNS)
    if reports:
        lay_over(block, rows_of(reports))
    for name in set(MEASURES) - known - {"loss"}:
        block[name][:] = np.nan
    assert rollups(block) == [encoded_rollup(rolled(block, width)) for width in WIDTHS]


def test_a_loss_that_is_not_known_weighs_nothing() -> None:
    block = empty_block(COLUMNS)
    lay_over(block, rows_of([(0, 1, float("nan"), 30), (1, 1, 2.0, 10), (2, 1, 4.0, 30)]))
    table = rolled(block, 10, ("samples", "scored_samples", "scored_loss"))
    assert [list(each[:2, 0]) for each in table] == [[3, 70], [2, 40], [2, 140]]


def test_what_was_not_reported_takes_no_room() -> None:
    block = empty_block(COLUMNS)
    assert {len(data) for data in encoded(block).values()} == {0}
    lay_over(block, rows_of([(6, 1, 0.5, 8)]))
    assert {len(data) for data in encoded(block).values()} == {7 * 8}
    assert len(encoded_rollup(rolled(block, 10))) == len(rollup_header(ROLLED)) + len(ROLLED) * len(STATISTICS) * 8


def windows_of(*names: str) -> NDArray[np.float64]:
    """Two windows whose values say which column and statistic they are."""
    columns, items, windows = np.meshgrid(range(1, len(names) + 1), range(4), (1, 2), indexing="ij")
    found: NDArray[np.float64] = 10.0 * columns + items + windows / 4
    return found


@given(st.permutations([*(name for name in ROLLED if name != "at_ms"), "removed", "later"]), st.data())
def test_history_written_before_a_column_was_added_reads_right_after_it(order: list[str], data: st.DataObject) -> None:
    """An earlier release had any of today's columns, and some that are gone, in any order."""
    names = data.draw(st.permutations([*order[: data.draw(st.integers(0, len(order)))], "at_ms"]))
    written = windows_of(*names)
    table = decoded_rollup(encoded_rollup(written, names))
    for place, name in enumerate(ROLLED):
        if name in names:
            np.testing.assert_array_equal(table[place], written[names.index(name)])
        else:
            np.testing.assert_array_equal(table[place], np.array([[0.0] * 2, [0.0] * 2, [np.nan] * 2, [np.nan] * 2]))


def test_columns_of_another_release_that_are_not_known_here_are_left_out() -> None:
    names = ("gpu", *ROLLED[::-1])
    written = windows_of(*names)
    table = decoded_rollup(encoded_rollup(written, names))
    np.testing.assert_array_equal(table, written[:0:-1])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (windows_of(*ROLLED).tobytes(), "was `manage.py migrate` not run"),
        (b"rollup\x00\x02" + b"x" * 40, "written by a later release"),
        (encoded_rollup(windows_of(*ROLLED))[:-8], "was it cut off"),
    ],
)
def test_bytes_that_are_no_rollup_of_paceline_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        decoded_rollup(data)
