"""Values as people read them."""

from datetime import timedelta

import pytest

from frontend import formats
from frontend.templatetags.paceline import gain
from tests.frontend.factories import START


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, formats.NONE),
        (0, "0"),
        (0.045678, "0.0457"),
        (878.4, "878"),
        (1234, "1234"),
        (12_345, "12.3k"),
        (2.5e6, "2.5M"),
        (-0.25, "\u22120.25"),
        (-12_345, "\u221212.3k"),
        (9.66e-6, "9.66×10⁻⁶"),  # noqa: RUF001
        (-1e-12, "\u22121×10⁻¹²"),  # noqa: RUF001
    ],
)
def test_numbers_have_few_digits(value: float | None, text: str) -> None:
    assert formats.significant(value) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0.00 EUR"), (9.66e-6, "under 0.01 EUR"), (0.6, "0.60 EUR"), (12_345.678, "12,345.68 EUR")],
)
def test_money_has_two_decimals(amount: float, text: str) -> None:
    assert formats.money(amount, "EUR") == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.9, "59 s"), (61, "1 min 01 s"), (3_720, "1 h 02 min"), (90_000, "1 d 1 h")]
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert formats.duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.10756, "108 ms"), (0.0042, "4.2 ms"), (75, "1 min 15 s")])
def test_short_times_are_in_milliseconds(seconds: float, text: str) -> None:
    assert formats.milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2, "just now"), (42, "42 s ago"), (130, "2 min ago"), (90_000, "1 d ago")]
)
def test_times_are_shown_relative_to_now(seconds: float, text: str) -> None:
    assert formats.ago(START, START + timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("count", "text"), [(12, "12 B"), (5400, "5.27 KiB"), (8 * 2**30, "8 GiB")])
def test_sizes_are_binary(count: int, text: str) -> None:
    assert formats.size(count) == text


def test_shares_are_per_cents() -> None:
    shares = (0.1234, 0.9123, -0.034, -0.0004, None)
    assert [formats.percent(share, 1) for share in shares] == ["12.3%", "91.2%", "\u22123.4%", "0.0%", formats.NONE]


def test_a_gain_below_half_a_percent_is_unchanged() -> None:
    assert [gain(part) for part in (0.61, -0.2, 0.004, -0.004)] == [
        "61% shorter",
        "20% longer",
        "unchanged",
        "unchanged",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(30, "30 s"), (60, "1 min"), (90, "1 min 30 s"), (600, "10 min"), (3600, "1 h")]
)
def test_a_chosen_duration_has_no_units_of_zero(seconds: float, text: str) -> None:
    assert formats.span(seconds) == text


WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("user_agent", "text"),
    [
        (f"Mozilla/5.0 (X11; Linux x86_64) {WEBKIT} HeadlessChrome/156.0.0.0 Safari/537.36", "Chrome 156 on Linux"),
        (
            f"Mozilla/5.0 (Windows NT 10.0; Win64) {WEBKIT} Chrome/140.0.0.0 Safari/537.36 Edg/140.0",
            "Edge 140 on Windows",
        ),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox 140 on Linux"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Version/19.0 Mobile/15E148"
            " Safari/604.1",
            "Safari 19 on iOS",
        ),
        ("curl/8.5.0", "curl/8.5.0"),
        ("x" * 300, "x" * 39 + "…"),
        ("", "unknown"),
    ],
)
def test_browsers_have_the_names_that_people_use(user_agent: str, text: str) -> None:
    assert formats.browser(user_agent) == text
