"""Sizes with units are read, and shown so that they are read back to the same number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.people.sizes import UNITS, exact_size, read_size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1024", 1024),
        ("10 GB", 10**10),
        ("10GB", 10**10),
        ("10 gb", 10**10),
        ("10G", 10**10),
        ("1.5 TiB", 3 * 2**39),
        ("512 Mi", 2**29),
        (" 7 B ", 7),
        ("0.5 kB", 500),
    ],
)
def test_a_size_is_read(text: str, count: int) -> None:
    assert read_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1 GB", "ten GB", "1e9", "1 PB", "1 GBit", "1,5 GB", "²", "1 G B"])
def test_what_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 10 GB or 1\.5 TiB"):
        read_size(text)


@given(
    st.integers(0, 2**62)
    | st.builds(lambda n, unit: n * UNITS[unit], st.integers(0, 9999), st.sampled_from(sorted(UNITS)))
)
def test_what_is_shown_is_read_as_the_same(count: int) -> None:
    assert read_size(exact_size(count)) == count


@pytest.mark.parametrize(("count", "text"), [(10**10, "10 GB"), (2**29, "512 MiB"), (1001, "1001 B"), (0, "0 B")])
def test_the_shortest_text_is_shown(count: int, text: str) -> None:
    assert exact_size(count) == text
