"""Template tags and filters: formats, icons and states. ``frontend.formats`` defines the formats."""

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

import msgspec
from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.simulator.variations import is_limited
from frontend import formats
from frontend.figures.table import Entry, FigureKind, Option
from frontend.figures.theme import LIGHT
from frontend.finders import CHART_LIBRARY, WHOLE_LIBRARY
from frontend.glossary import Term, by_name
from frontend.modules import FOLDER, with_imports
from frontend.queries.simulations import varied_of

register = template.Library()

register.filter("significant", formats.significant)
register.filter("percent", formats.percent)
register.filter("milliseconds", formats.milliseconds)
register.filter("duration", formats.duration)
register.filter("bytes", formats.size)
register.filter("workertime", formats.worker_time)
register.filter("browser", formats.browser)
register.filter("varied", varied_of)
register.filter("limited", is_limited)


@register.simple_tag
def chart_library(*kinds: FigureKind, several: Iterable[FigureKind] = ()) -> str:
    """The URL of the chart library that supports all these kinds of figures."""
    whole = any(kind.whole for kind in (*kinds, *several))
    return static(WHOLE_LIBRARY if whole else CHART_LIBRARY)


@register.simple_tag
def module_preloads(*names: str) -> SafeString:
    """Requests these modules, and all that they import, before the page is read to its end."""
    urls = ((static(f"{FOLDER}/{name}.js"),) for name in with_imports(*names))
    return format_html_join("\n", '<link rel="modulepreload" href="{}">', urls)


@register.filter
def switches(options: tuple[Option | Entry, ...]) -> str:
    """The options and inputs of a figure as JSON, for its element."""
    return msgspec.json.encode(options).decode()


@register.filter
def scopes(names: str) -> str:
    """The scopes of a token as text."""
    return ", ".join(names.split())


@register.filter
def plainly(value: object) -> str:
    """A value of a user's request: strings unchanged, other values as JSON, on several lines if long."""
    if isinstance(value, str):
        return value
    text = msgspec.json.encode(value)
    return (text if len(text) <= IN_LINE else msgspec.json.format(text)).decode()


@register.filter
def as_json(value: object) -> str:
    """The value as JSON, for an attribute that a script reads."""
    return msgspec.json.encode(value).decode()


IN_LINE = 80
"""Characters."""

STATE_ICONS = {
    "submitted": "queued",
    "scheduled": "queued",
    "starting": "spinner",
    "waiting for ranks": "queued",
    "running": "play",
    "finishing": "spinner",
    "paused": "pause",
    "succeeded": "check",
    "failed": "cross",
    "cancelled": "slash",
    "ordered": "queued",
    "ready": "play",
    "unreachable": "question",
    "finished": "check",
    "lost": "cross",
    "stopped": "slash",
    "online": "play",
    "offline": "slash",
    "cordoned": "pause",
    "draining": "spinner",
    "drained": "check",
    "stays": "queued",
    "adding": "spinner",
    "leaving": "spinner",
    "returning": "spinner",
    "moved": "check",
    "gone": "check",
    "queued": "queued",
    "pending": "spinner",
    "healthy": "check",
    "degraded": "warning",
    "down": "cross",
    "unknown": "question",
    "info": "info",
    "warning": "warning",
    "critical": "cross",
    "delivered": "check",
}
"""Icons of states, which are never shown by colour alone."""


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """An icon of the sprite; decorative unless it has a label."""
    sprite = static("paceline/icons.svg")
    if label:
        named = '<svg class="icon" role="img" aria-label="{}"><use href="{}#{}"/></svg>'
        return format_html(named, label, sprite, name)
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', sprite, name)


@register.simple_tag
def state(name: str) -> SafeString:
    """A state as icon, text and colour."""
    return format_html(
        '<span class="state state-{}">{}<span>{}</span></span>',
        name.replace(" ", "-"),
        icon(STATE_ICONS.get(name, "question")),
        name,
    )


@register.simple_tag
def when(at_time: datetime | None) -> SafeString:
    """A relative time that the page keeps current, with the absolute time on hover."""
    if at_time is None:
        return format_html("<span>{}</span>", "never")
    return format_html(
        '<time datetime="{}" title="{}" data-ago>{}</time>',
        at_time.isoformat(timespec="seconds"),
        f"{at_time:%Y-%m-%d %H:%M:%S} UTC",
        formats.ago(at_time, timezone.now()),
    )


@cache
def terms() -> dict[str, Term]:
    """The glossary by name."""
    return by_name()


@register.simple_tag(takes_context=True)
def word(context: dict[str, Any], name: str, label: str = "", *, link: bool = True) -> SafeString:
    """A term, or its label, as a link to its glossary entry with the meaning on hover.

    In a report, or within another link, only the meaning on hover.
    """
    term = terms().get(name)
    if term is None:
        return format_html("<span>{}</span>", label or name)
    if not link or context.get("report"):
        return format_html('<abbr title="{}">{}</abbr>', term.meaning, label or name)
    address = f"{reverse('glossary')}#{term.anchor}"
    return format_html('<a class="term" href="{}" title="{}">{}</a>', address, term.meaning, label or name)


@register.filter
def at(values: tuple[str, ...], place: int) -> str:
    """The value at an index."""
    return values[place]


@register.filter
def of_key(found: dict[Any, Any], key: Any) -> Any:
    """The value of a mapping's key, or None."""
    return found.get(key) if found else None


@register.filter
def worker_class(rank: int) -> str:
    """The CSS class of a worker's colour, the same on every page."""
    return f"worker-{rank % len(LIGHT.categories)}"


@register.filter
def first_clause(sentence: str) -> str:
    """The first part of a finding; the whole text is in the table of findings."""
    return sentence.partition(";")[0]


@register.filter
def gain(part: float) -> str:
    """A relative change of a duration, as text: ``12% shorter``."""
    per_cent = f"{abs(part):.0%}"
    return "unchanged" if per_cent == "0%" else f"{per_cent} {'shorter' if part >= 0 else 'longer'}"


@register.filter
def of(part: float, whole: float) -> int:
    """``part`` in 400ths of ``whole``: the value of ``data-of``, which lengths.css turns into a length."""
    return min(400, max(0, round(400 * part / whole))) if whole else 0


@register.simple_tag(takes_context=True)
def query(context: dict[str, Any], **changes: Any) -> str:
    """The page's query string with some parameters changed; empty ones are dropped."""
    parameters = context["request"].GET.copy()
    for name, value in changes.items():
        parameters.pop(name, None)
        if value not in ("", None):
            parameters[name] = str(value)
    return f"?{parameters.urlencode()}"


@register.filter
def field_title(path: str) -> str:
    """``synchronization.batching.name`` as a label: ``Batching``."""
    parts = path.split(".")
    return (parts[-1] if parts[-1] != "name" else parts[-2]).capitalize()
