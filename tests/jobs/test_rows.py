"""Rows that are written past Django's models are as Django would have written them."""

from datetime import UTC, datetime, timedelta, timezone

from django.db import connection
from django.db.backends.sqlite3.base import DatabaseWrapper
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs import rows

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])


@given(value=st.none() | st.datetimes(min_value=datetime(1970, 1, 2), timezones=ZONES))
def test_a_time_is_written_into_sqlite_as_django_writes_it(value: datetime | None) -> None:
    assert rows._time_for_sqlite(value) == DatabaseWrapper.ops_class(connection).adapt_datetimefield_value(value)
