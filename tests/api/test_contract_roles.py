"""Every operation of the OpenAPI document, called as every role: no 5xx, no undocumented answer.

By default each operation as one of the roles; PACELINE_CONTRACT_CASES=30000 makes at least so many. Their numbers by
role and status are shown by ``-o log_cli=true --log-cli-level=INFO``. The application is not made by
``get_wsgi_application``, which would configure logging anew and end that.
"""

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from hypothesis import HealthCheck, Phase, given, settings
from knox.models import AuthToken
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from controlplane.jobs.roles import Role
from tests.api.conftest import PLAIN, user_of
from tests.support.rows import online_agent, submitted_job

logger = logging.getLogger(__name__)

CASES = int(os.environ.get("PACELINE_CONTRACT_CASES", "0"))
ROLES = ("anybody", "nobody", *Role)
"""``anybody`` shows no token; ``no one`` is a user without a role."""

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BOUNDED = settings(
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module")
def counted() -> Iterator[Counter[tuple[str, int]]]:
    """Cases by role and status; a line for each role at the end."""
    counts = Counter[tuple[str, int]]()
    yield counts
    for role in ROLES:
        of_role = {status: cases for (who, status), cases in sorted(counts.items()) if who == role}
        logger.info("%s, in all: %d cases, %s", role, sum(of_role.values()), of_role)
    logger.info("every role: %d cases, %s", counts.total(), sorted({status for _, status in counts}))


@pytest.fixture
def served(transactional_db: None, roles: None, redis_url: str, settings: Any) -> Any:
    """The API as a WSGI application, with one job and one machine in it, and no limit of requests."""
    settings.RATE_LIMITS = None
    submitted_job(User.objects.create_user("ada"))
    online_agent("m1")
    return schemathesis.openapi.from_wsgi(
        "/api/v1/schema", WSGIHandler(), headers=_headers(User.objects.create_superuser("root"))
    )


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.timeout(3_600 if CASES else 240)
def test_every_role_is_answered_as_documented(
    served: Any, counted: Counter[tuple[str, int]], role: str, mode: GenerationMode
) -> None:
    user = None if role == "anybody" else user_of(None if role == "nobody" else Role(role))
    headers = _headers(user)
    operations = list(_operations(served, mode))
    if not CASES:  # one in five for each role: the whole takes minutes
        operations = operations[ROLES.index(role) :: len(ROLES)]
    each = max(1, math.ceil(CASES / (len(ROLES) * len(GenerationMode) * len(operations))))
    statuses = Counter[int]()
    for operation in operations:

        @settings(BOUNDED, max_examples=each)
        @given(case=operation.as_strategy(generation_mode=mode))
        def answer(case: schemathesis.Case) -> None:
            reply = case.call(headers=headers)
            statuses[reply.status_code] += 1
            counted[role, reply.status_code] += 1
            case.validate_response(reply, checks=CHECKS)

        answer()
    logger.info("%s, %s: %d cases, %s", role, mode.value, statuses.total(), dict(sorted(statuses.items())))
    assert statuses.total() >= len(operations) * each * 0.9
    if role in {"anybody", "nobody"}:
        assert not statuses.keys() - {200, 201, 400, 401, 403, 404, 405, 413, 415}, "and what was changed?"


def _operations(schema: Any, mode: GenerationMode) -> Iterator[Any]:
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.POSITIVE or any(
            (operation.body, operation.query, operation.path_parameters, operation.headers)
        ):
            yield operation


def _headers(user: User | None) -> dict[str, str]:
    if user is None:
        return PLAIN
    _, token = AuthToken.objects.create(user=user)
    return PLAIN | {"Authorization": f"Bearer {token}"}
