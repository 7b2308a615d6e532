"""Defines the tabs of a job's page: names, live parts, figures, and the context of the parts."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from controlplane.jobs.autopilots import job_autopilot
from controlplane.jobs.models import Job
from controlplane.jobs.tokens import live_tokens
from controlplane.protocol.orders import Block
from controlplane.runtime.alternatives import job_alternatives
from controlplane.telemetry.logged import has_logged
from controlplane.telemetry.selectors import LEVELS, process_of
from frontend.figures.episodes import last_that_mattered
from frontend.figures.rows import View
from frontend.parameters import Query, QueryError, number_of, one_of
from frontend.queries import job as queries
from frontend.queries import logs, moves, whatif
from frontend.queries import waiting as lost
from frontend.queries.advice import advice
from frontend.queries.cache import of_job
from frontend.queries.energy import energy, total
from frontend.queries.environment import environments, protection
from frontend.queries.episodes import episodes
from frontend.queries.gpus import gpus
from frontend.queries.lanes import lanes, steady_verdict
from frontend.queries.measured import charts_of
from frontend.queries.notes import notes
from frontend.queries.placement import updates_per_s
from frontend.queries.stepping import stepping

CLOSED = 4
"""Maximum number of closed findings that are shown, the latest; others are collapsed."""

MANY = 64
"""With more workers, the heat map of all replaces charts of a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One tab. ``parts`` are live: templates ``parts/job_NAME.html``, each a section with the id ``job-NAME``."""

    title: str
    context: Callable[[Job, Query], dict[str, Any]]
    """Builds the context of the parts from the job and the query string; may raise ``QueryError``."""
    parts: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    """Figures of the tab, placed after the first part."""
    figures_first: bool = False
    """Whether the figures come before all parts."""
    of_servers: bool = False
    """Whether its figures are about servers, which an attached job does not have."""
    figures_of_many: tuple[str, ...] = ()
    """The figures for a job of more than ``MANY`` workers, if not empty."""

    charts_of: Callable[[Job], tuple[str, ...]] = lambda job: ()
    """Default charts of measurements for which the job has values."""

    def figures_for(self, workers: int) -> tuple[str, ...]:
        """The figures that are readable with that many workers."""
        return self.figures_of_many if workers > MANY and self.figures_of_many else self.figures

    @property
    def first(self) -> tuple[str, ...]:
        """Templates before the figures."""
        return () if self.figures_first else tuple(f"parts/job_{name}.html" for name in self.parts[:1])

    @property
    def rest(self) -> tuple[str, ...]:
        """Templates after the figures."""
        return tuple(f"parts/job_{name}.html" for name in self.parts[len(self.first) :])


def _flags(job: Job, query: Query) -> dict[str, Any]:
    flags = queries.flags(job, timezone.now())
    unfolded = sum(flag.closed_at is None for flag in flags) + CLOSED
    return {
        "flags": flags[:unfolded],
        "folded_flags": flags[unfolded:],
        "open_flags": [
            flag for flag in flags if flag.closed_at is None and flag.note is None and not flag.behind.is_quiet
        ],
        "flagged_on": queries.machines_of(job, flags),
    }


def _overview(job: Job, query: Query) -> dict[str, Any]:
    drawn, now = of_job("lanes", job, lanes), timezone.now()
    verdict = steady_verdict(job, drawn, now.timestamp())
    return {
        "lanes": drawn,
        "verdict": verdict,
        "advice": advice(job, now, waits=verdict.tone == "watch"),
        "autopilot": job_autopilot(job),
        "mattered": last_that_mattered(of_job("episodes", job, episodes)),
        "notes": notes(job),
    } | _flags(job, query)


def _map(job: Job, query: Query) -> dict[str, Any]:
    """The machine of each row of the map, for links to it."""
    workers = [each for each in queries.processes(job) if each.role == "worker"]
    return {
        "map_rows": workers,
        "flagged": {flag.rank for flag in queries.flags(job, timezone.now()) if _is_open(flag)},
    }


def _is_open(flag: queries.FlagLine) -> bool:
    return flag.closed_at is None and flag.subject == "worker"


def _nothing(job: Job, query: Query) -> dict[str, Any]:
    """No context: the tab has only figures, which load themselves."""
    return {}


def _workers(job: Job, query: Query) -> dict[str, Any]:
    found, used = of_job("gpus", job, gpus), of_job("energy", job, energy)
    return {
        "gpus": found,
        "most_gpu_memory": max((each.memory or 0.0 for each in found), default=0.0) or 1.0,
        "energy": used,
        "energy_total": total(used),
    }


def _decisions(job: Job, query: Query) -> dict[str, Any]:
    kinds = one_of(query, "decisions", queries.KINDS, "key")
    return {
        "decisions": queries.decisions(job, kinds=kinds, before=number_of(query, "before", "decision")),
        "kinds": kinds,
        "all_kinds": list(queries.KINDS),
        "per_page": queries.DECISIONS,
        "episodes": of_job("episodes", job, episodes) if kinds == "key" else [],
    }


def _logs(job: Job, query: Query) -> dict[str, Any]:
    level, process = one_of(query, "level", LEVELS, logs.USUAL), query.get("process", "")
    if process and process_of(process) is None:
        raise QueryError("process", process, "w or s with a number, such as w0")
    text = query.get("text", "").strip()[:200]
    return logs.log_page(job, level=level, process=process, text=text) | _environment(job)


def _environment(job: Job) -> dict[str, Any]:
    return {"environments": environments(job), "control_plane": job.environment, "protection": protection(job)}


def _placement(job: Job, query: Query) -> dict[str, Any]:
    lines, rate, blocks = queries.servers(job), updates_per_s(job), moves.blocks_of(job)
    return {
        "servers": lines,
        "protection": protection(job),
        "updates_per_s": rate,
        "traffic": {line.index: rate * line.held_bytes for line in lines} if rate is not None else {},
        "offers": moves.offers(blocks),
        **_move(job, lines, blocks, query),
        "fragile": queries.ends_with_a_server(job),
        "late_updates": queries.late_updates(job),
    }


def _move(job: Job, lines: list[queries.ServerLine], blocks: list[Block], query: Query) -> dict[str, Any]:
    """The move in the parameters ``move`` and ``to``; the server may have left since."""
    block, server = number_of(query, "move", "block"), number_of(query, "to", "server")
    if block is None or server is None or not blocks:
        return {}
    try:
        return {"move": moves.move(job, blocks, lines, block, server)}
    except ValueError as error:
        return {"move_error": str(error)}


def _waiting(job: Job, query: Query) -> dict[str, Any]:
    found, days = lost.accounts(job)
    everyone = one_of(query, "rows", ("worst", "all")) == "all"
    rows = lost.rows_of(found, everyone=everyone)
    return {
        "waiting": found,
        "waited": rows,
        "worst": lost.WORST if len(found.workers) > lost.MANY else None,
        "everyone": everyone,
        "most_waited": max((row.worker.lost_s for row in rows if not row.is_rest), default=0.0),
        "price": lost.price(found.lost_s),
        "again_price": lost.price(found.again_s + found.again_coordination_s),
        "days": days,
        "stepping": stepping(job),
    }


def _whatif(job: Job, query: Query) -> dict[str, Any]:
    whatif.look(job)
    return {
        "advice": advice(job, timezone.now(), waits=False),
        "autopilot": job_autopilot(job),
        "switches": {each.name: each for each in job_alternatives(job)},
        "others": whatif.others(job, View()),
        "forecast": whatif.forecast(job),
        "recent_s": whatif.RECENT_S,
        "predictors": whatif.predictor_scores(job),
    }


def _processes(job: Job, query: Query) -> dict[str, Any]:
    return {
        "processes": queries.processes(job),
        "tokens": list(live_tokens(job)) if job.launch == "attached" else [],
        "spec": json.dumps(job.spec, indent=2),
    }


TABS: dict[str, Tab] = {
    "overview": Tab(
        title="Overview",
        context=_overview,
        parts=("lanes", "flags", "notes"),
        figures=("batch-size", "iteration-time", "convergence"),
        figures_of_many=("heat-map", "convergence"),
        charts_of=lambda job: ("logged",) if has_logged(job.pk) else (),
    ),
    "workers": Tab(
        title="Workers",
        context=_workers,
        parts=("gpus", "energy"),
        figures_first=True,
        figures=("batch-size", "iteration-time", "worker-speed", "staleness"),
        charts_of=charts_of,
    ),
    "heatmap": Tab(title="Heat map", context=_map, parts=("machines",), figures=("heat-map",), figures_first=True),
    "timeline": Tab(title="Timeline", context=_nothing, figures=("timeline",)),
    "waiting": Tab(title="Waiting", context=_waiting, parts=("lost", "waiting"), figures=("waiting-price",)),
    "whatif": Tab(
        title="What if",
        context=_whatif,
        parts=("whatif", "autopilot"),
        figures=("others", "machine-changes", "predictor-errors"),
    ),
    "placement": Tab(
        title="Placement",
        context=_placement,
        parts=("servers", "move"),
        figures=("block-map", "server-exchanges"),
        of_servers=True,
    ),
    "decisions": Tab(
        title="Decisions", context=_decisions, parts=("decisions",), figures=("predictions",), figures_first=True
    ),
    "logs": Tab(title="Logs & config", context=_logs, parts=("logs", "environment")),
    "processes": Tab(
        title="Processes", context=_processes, parts=("processes", "spec"), figures=("topology",), figures_first=True
    ),
}
"""In the order of the page, the default first."""


def tab_of(query: Query) -> str:
    """The name of the tab in a query string.

    Raises:
        QueryError: with the existing names.
    """
    return one_of(query, "tab", TABS)
