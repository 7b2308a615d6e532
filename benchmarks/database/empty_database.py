"""An empty database for a benchmark: created next to the configured one, migrated, and dropped at the end."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import connection

from controlplane.jobs.models import Job
from controlplane.protocol.spec import parse_spec, spec_document


@contextmanager
def empty_database() -> Iterator[str]:
    """Let this process use it; yields the kind of database."""
    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield str(connection.vendor)
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def measured_job(workers: int) -> Job:
    """A job to which the written rows belong."""
    stop = {"iterations": 10**6}
    spec = parse_spec(
        {"name": "bench", "workload": "softmax-regression", "workers": workers, "batch_size": 64, "stop": stop}
    )
    user = User.objects.get_or_create(username="bench")[0]
    return Job.objects.create(name="bench", spec=spec_document(spec), submitted_by=user)
