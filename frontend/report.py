"""Renders a job as one HTML file with interactive charts that needs no network access."""

import json
import re
from pathlib import Path

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils import timezone
from django.utils.safestring import mark_safe

from controlplane.jobs.models import Job
from controlplane.telemetry.logged import has_logged
from frontend.build import build_figure
from frontend.figures import FIGURES, FigureKind
from frontend.figures.lanes import verdict
from frontend.finders import CHART_LIBRARY, WHOLE_LIBRARY
from frontend.queries import job as queries
from frontend.queries.environment import environments, protection
from frontend.queries.jobs import one_job
from frontend.queries.lanes import lanes
from frontend.queries.measured import charts_of

STYLES = ("tokens", "base", "parts", "lengths", "job", "report")
DECISIONS = 200
"""Maximum number of key decisions, the latest; the API has all of them."""

LIVE = frozenset({"others", "machine-changes"})
"""Figures of the current state, which are not part of a report."""

SPRITE = "paceline/icons.svg"

_AGO = re.compile(r'<time ([^>]*?) title="([^"]*)" data-ago>[^<]*</time>')
_SYMBOL = re.compile(r'<symbol id="')


def render_report(job: Job) -> str:
    """The document. Figures use the light theme, for printing; times are absolute."""
    drawn, flags = lanes(job), queries.flags(job, timezone.now())
    kinds = _figures_of(job)
    figures = [(name, kind.title, _figure(name, job)) for name, kind in kinds.items()]
    needs_whole = any(kinds[name].whole and '"data":[]' not in body for name, _, body in figures)
    context = {
        "report": True,
        "job": one_job(job, timezone.now()),
        "lanes": drawn,
        "verdict": verdict(drawn),
        "flags": flags,
        "decisions": queries.decisions(job, most=DECISIONS),
        "processes": queries.processes(job),
        "environments": environments(job),
        "control_plane": job.environment,
        "protection": protection(job),
        "spec": json.dumps(job.spec, indent=2),
        "figures": figures,
        "styles": mark_safe("\n".join(_asset(f"paceline/css/{name}.css") for name in STYLES)),
        "sprite": mark_safe(_SYMBOL.sub('<symbol id="icon-', _asset(SPRITE))),
        "plotly": mark_safe(_asset(WHOLE_LIBRARY if needs_whole else CHART_LIBRARY).replace("</script", "<\\/script")),
        "made_at": timezone.now(),
    }
    page = render_to_string("report.html", context)
    return _AGO.sub(r"<time \1>\2</time>", page.replace(f'href="{static(SPRITE)}#', 'href="#icon-'))


def _figures_of(job: Job) -> dict[str, FigureKind]:
    """Figures of the whole job, with measurements and logged series that have values."""
    charts = (*charts_of(job), *(["logged"] if has_logged(job.pk) else []))
    return {
        name: kind
        for name, kind in FIGURES.items()
        if name not in LIVE and (kind.rows not in {"measured", "logged"} or name in charts)
    }


def _figure(name: str, job: Job) -> str:
    """The figure's JSON, safe within a script element."""
    body = build_figure(name, job, {"theme": "light"}).decode()
    return mark_safe(body.replace("<", "\\u003c"))


def _asset(name: str) -> str:
    found = finders.find(name)
    if not isinstance(found, str):
        raise FileNotFoundError(f"{name}: not found among the static files of this installation")
    return Path(found).read_text(encoding="utf-8")
