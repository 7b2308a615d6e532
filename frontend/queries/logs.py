"""Reads the last lines of a job's logs for its page, oldest first."""

from typing import Any
from urllib.parse import urlencode

from controlplane.jobs.models import Job
from controlplane.jobs.selectors import job_processes
from controlplane.telemetry.selectors import LEVELS, dropped_lines, job_lines, process_of
from frontend.queries.log_records import records

LINES = 300
USUAL = "output"


def log_page(job: Job, *, level: str, process: str, text: str) -> dict[str, Any]:
    """The lines, the available filters, and the download URL."""
    chosen = {key: value for key, value in (("level", level), ("process", process), ("text", text)) if value}
    lines = list(job_lines(job.pk, level=level, process=process_of(process), text=text)[: LINES + 1])
    return {
        "records": records(lines[:LINES][::-1]),
        "more_lines": len(lines) > LINES,
        "most_lines": LINES,
        "dropped_lines": f"{dropped:,}" if (dropped := dropped_lines(job.pk)) else "",
        "levels": LEVELS,
        "level": level,
        "process": process,
        "text": text,
        "writers": list(dict.fromkeys(f"{each.role[0]}{each.index}" for each in job_processes(job.pk))),
        "logs_query": urlencode(chosen),
    }
