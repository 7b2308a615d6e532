"""Where tensors lie in the flat vector, and what a block has of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.workloads.layout import Entry, Layout

LAYOUT = Layout.of({"weight": (2, 3), "bias": (2,)}, {"mean": ((2,), "float32"), "count": ((), "int64")})


def test_parameters_come_first_and_buffers_after_them() -> None:
    kinds = [(entry.name, entry.start, entry.stop, entry.kind, entry.dtype) for entry in LAYOUT.entries]
    assert kinds == [
        ("weight", 0, 6, "parameter", "float32"),
        ("bias", 6, 8, "parameter", "float32"),
        ("mean", 8, 10, "buffer", "float32"),
        ("count", 10, 11, "buffer", "int64"),
    ]
    assert (LAYOUT.size, LAYOUT.edge, LAYOUT.sizes) == (11, 8, [6, 2, 2, 1])
    assert Layout.of({"only": (3,)}).edge == 3


def test_a_block_knows_what_it_has_of_each_tensor() -> None:
    pieces = [(p.entry.name, p.start, p.stop, p.within, p.is_whole) for p in LAYOUT.span(4, 9)]
    assert pieces == [("weight", 0, 2, 4, False), ("bias", 2, 4, 0, True), ("mean", 4, 5, 0, False)]


def test_gaps_and_parameters_behind_buffers_are_refused() -> None:
    with pytest.raises(ValueError, match="b starts at 3, expected 2"):
        Layout((Entry("a", (2,), 0), Entry("b", (2,), 3)))
    with pytest.raises(ValueError, match="all parameters before all buffers"):
        Layout((Entry("a", (2,), 0, "buffer"), Entry("b", (2,), 2)))


@given(st.lists(st.integers(0, 11), max_size=4).map(lambda cuts: [0, *sorted(cuts), 11]))
def test_the_pieces_of_all_blocks_are_every_tensor_once(cuts: list[int]) -> None:
    vector = np.arange(11, dtype=np.float32)
    found: dict[str, list[float]] = {entry.name: [] for entry in LAYOUT.entries}
    for start, stop in itertools.pairwise(cuts):
        for piece in LAYOUT.span(start, stop):
            assert piece.within == len(found[piece.entry.name])
            found[piece.entry.name] += vector[start:stop][piece.start : piece.stop].tolist()
    assert found == {name: view.ravel().tolist() for name, view in LAYOUT.views(vector).items()}
