"""A few of the faults that ``manage.py bench faults`` does by the hundred."""

import json
from pathlib import Path

import pytest

from controlplane.runtime.embedded.redis_server import redis_binary
from tests.conftest import INSTALL_REDIS
from tests.support.commands import running

pytestmark = pytest.mark.integration

KINDS = ["redis loses its end", "cut every link", "die at coordinator.handled"]
END_S = 330.0
"""About ten times what it takes on a quiet machine."""


@pytest.mark.timeout(END_S + 30.0)
def test_nothing_is_lost_doubled_or_evicted_under_fire(tmp_path: Path) -> None:
    if redis_binary() is None:
        pytest.skip(INSTALL_REDIS)
    asked = ("--minutes", "2", "--faults", str(len(KINDS)), "--kinds", *KINDS)
    with running(tmp_path, "bench", "faults", "--json", *asked) as command:
        code = command.end(seconds=END_S)
        said = command.said()
    assert code == 0, said
    document = json.loads(said.splitlines()[-1])
    verdict = document["verdict"]
    assert (document["failures"], verdict["lost"], verdict["doubled"], verdict["evicted"]) == ([], 0, 0, [])
    assert verdict["rows"] == verdict["sent"] > 0
    assert {kind: told["count"] for kind, told in document["kinds"].items()} == dict.fromkeys(KINDS, 1)
