"""Liveness and readiness probes."""

import redis.exceptions
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from controlplane.api.problems import plain_response
from controlplane.runtime.dead_letters import job_warnings
from controlplane.runtime.ingest_health import history
from controlplane.runtime.redis import shared
from controlplane.runtime.redis_identity import own_identity
from controlplane.runtime.redis_memory import redis_memory


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 while this process responds."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 if work can be accepted: database and Redis answer, and history can be written; else 503 with the reason.

    Faults that only get worse over time (history falls behind, Redis fills up) are listed in ``warnings``.
    """
    redis_fault, warnings = _redis_state()
    faults = [fault for fault in (_database_fault(), redis_fault) if fault]
    if faults:
        return plain_response(503, "; ".join(faults + warnings))
    return JsonResponse({"status": "ok"} | ({"warnings": warnings} if warnings else {}))


def _database_fault() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM jobs_job LIMIT 1")
    except DatabaseError as error:
        return f"database: {str(error).strip()}; was `manage.py migrate` run?"
    return ""


def _redis_state() -> tuple[str, list[str]]:
    """The error if Redis is unavailable, belongs to another database or cannot be copied; and warnings."""
    try:
        own_identity(shared())
        copying, warnings = history(shared()), [redis_memory(shared()).sentence, job_warnings(shared())]
    except (redis.exceptions.RedisError, RuntimeError) as error:
        return f"redis: {error}", []
    except DatabaseError:  # reported already
        return "", []
    fault = copying.sentence if copying.stopped_since is not None else ""
    warnings += [copying.sentence] if not fault else []
    return fault, [warning for warning in warnings if warning]
