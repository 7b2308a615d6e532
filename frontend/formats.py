"""Formats values for display: with units, and at most four significant digits."""

import re
from datetime import datetime

NONE = "–"  # noqa: RUF001 - tables show an en dash for "not measured"

MINUS = "\u2212"
"""The minus sign for display; exported data keeps the hyphen."""

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

BROWSERS = (
    *(rf"\b(?P<name>{name})\w*/(?P<version>\d+)" for name in ("Edg", "OPR", "Firefox")),
    r"(?P<name>Chrome)/(?P<version>\d+)",
    r"\b(?P<name>Version)/(?P<version>\d+)[\d.]* (?:Mobile/\w+ )?Safari/",
)
"""The first match counts: Edge and Opera also name Chrome in their user agents, and Chrome names Safari."""

SYSTEMS = (
    *(("Windows", "Windows"), ("Android", "Android"), ("iPhone", "iOS"), ("iPad", "iOS")),
    *(("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux")),
)

STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def significant(value: float | None, digits: int = 3) -> str:
    """``12 345`` as ``12.3k``, ``0.04567`` as ``0.0457``: few significant digits; small counts keep all digits."""
    if value is None:
        return NONE
    for step, suffix in STEPS:
        if abs(value) >= step * (1 if suffix != "k" else 10):
            return f"{_plain(value / step, digits)}{suffix}"
    return _plain(value, max(digits, 4) if abs(value) >= 1000 else digits)


def money(amount: float, unit: str) -> str:
    """An amount with two decimals; smaller positive amounts as ``under 0.01``."""
    if 0 < abs(amount) < 0.005:
        return f"under 0.01 {unit}".strip()
    return f"{signed(f'{amount:,.2f}')} {unit}".strip()


def _plain(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return signed(text)
    if abs(value) >= 1:
        return signed(f"{float(text):.0f}")
    factor, exponent = text.split("e")
    return f"{signed(factor)}×10{exponent.replace('-0', '-').translate(RAISED)}"  # noqa: RUF001


def signed(number: str) -> str:
    """A formatted number with minus signs instead of hyphens, and no sign before zero: ``-0.0%`` becomes ``0.0%``."""
    return (number if any(digit in "123456789" for digit in number) else number.lstrip("-")).replace("-", MINUS)


def percent(share: float | None, digits: int = 0) -> str:
    """A fraction as a percentage."""
    return NONE if share is None else signed(f"{share * 100:.{digits}f}%")


def milliseconds(seconds: float | None) -> str:
    """A short duration."""
    if seconds is None:
        return NONE
    return f"{significant(seconds * 1000)} ms" if seconds < 10 else duration(seconds)


def duration(seconds: float | None) -> str:
    """A long duration in its two largest units: ``3 min 12 s``."""
    if seconds is None:
        return NONE
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


def span(seconds: float) -> str:
    """A configured duration, without units that are zero: ``10 min``, ``1 min 30 s``."""
    return duration(seconds).removesuffix(" 00 s").removesuffix(" 00 min")


def browser(user_agent: str) -> str:
    """A short form of a browser's user agent: ``Firefox 140 on Linux``. Unknown ones are not changed."""
    if not user_agent:
        return "unknown"
    found = next((match for pattern in BROWSERS if (match := re.search(pattern, user_agent))), None)
    if found is None:
        return user_agent if len(user_agent) <= 40 else f"{user_agent[:39]}…"
    system = next((name for mark, name in SYSTEMS if mark in user_agent), "")
    name = {"Edg": "Edge", "OPR": "Opera", "Version": "Safari"}.get(found["name"], found["name"])
    return f"{name} {found['version']}{f' on {system}' if system else ''}"


def worker_time(seconds: float | None) -> str:
    """A sum of several workers' time; small values have one decimal, so that columns add up."""
    if seconds is None or seconds >= 120:
        return duration(seconds)
    return f"{seconds:.1f} s"


def ago(then: datetime | None, now: datetime) -> str:
    """How long ago, in one unit."""
    if then is None:
        return "never"
    seconds = max(0, int((now - then).total_seconds()))
    if seconds < 5:
        return "just now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def size(count: int) -> str:
    """Bytes in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{_plain(value, 3)} {unit}"
        value /= 1024
    return f"{_plain(value, 4)} TiB"
