"""Rows that are written past Django's models are as Django would have written them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.backends.sqlite3.base import DatabaseWrapper
from hypothesis import given
from hypothesis import strategies as st

from controlplane.jobs import rows

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])


@given(value=st.none() | st.datetimes(min_value=datetime(1970, 1, 2), timezones=ZONES))
def test_a_time_is_written_into_sqlite_as_django_writes_it(value: datetime | None) -> None:
    assert rows._time_for_sqlite(value) == DatabaseWrapper.ops_class(connection).adapt_datetimefield_value(value)


@pytest.mark.django_db
def test_a_statement_reports_how_many_rows_it_changed_and_finds_them() -> None:
    tag = ContentType.objects.create(app_label="rows", model="first")
    table = ContentType._meta.db_table
    change = f"UPDATE {table} SET model = %s WHERE app_label = %s AND model = %s"
    assert rows.change_row(change, ("second", "rows", "first")) == 1
    assert rows.change_row(change, ("third", "rows", "first")) == 0
    assert rows.read_row(f"SELECT model FROM {table} WHERE id = %s", (tag.pk,)) == ("second",)
    assert rows.read_row(f"SELECT model FROM {table} WHERE id = %s", (-1,)) is None
