"""Test databases are copies of migrated ones, and empty at the begin of each test."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase

from tests.support.databases import empty_tables, state_of_migrations


@pytest.mark.django_db
def test_every_migration_is_applied() -> None:
    call_command("migrate", "--check")


def test_what_a_test_committed_is_gone_and_permissions_are_as_migrations_made_them(transactional_db: None) -> None:
    made = set(Permission.objects.values_list("pk", "codename")), set(ContentType.objects.values_list("pk", "model"))
    user = User.objects.create_user("ada")
    user.user_permissions.add(Permission.objects.latest("pk"))
    empty_tables(TransactionTestCase())
    assert made[0]
    assert made == (
        set(Permission.objects.values_list("pk", "codename")),
        set(ContentType.objects.values_list("pk", "model")),
    )
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor)) - {"auth_permission", "django_content_type"}
        for table in tables - {"django_migrations"}:
            cursor.execute(f'SELECT COUNT(*) FROM "{table}"')
            assert cursor.fetchone() == (0,), table


def test_a_migration_that_changes_is_not_in_what_was_migrated_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migration = tmp_path / "migrations" / "0001_first.py"
    migration.parent.mkdir()
    monkeypatch.setattr(apps, "get_app_configs", lambda: [SimpleNamespace(path=str(tmp_path))])
    found = []
    for text in ("", "operations = []", ""):
        migration.write_text(text)
        found.append(state_of_migrations())
    assert (found[0] == found[2], found[0] == found[1]) == (True, False)
