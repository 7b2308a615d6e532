"""Creates the tables of an empty database in one step instead of by every migration."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import RunPython
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def create_tables(connection: BaseDatabaseWrapper) -> bool:
    """Create all tables as they are after the last migration, and record every migration as applied, in one
    transaction.

    Of the migrations' Python code, only that marked ``elidable=False`` runs: the rest converts rows, of which there are
    none.

    Returns:
        whether it did; False: the database has tables, and its migrations are to be applied one by one.
    """
    if connection.introspection.table_names():
        return False
    recorder = MigrationRecorder(connection)
    loader = MigrationLoader(connection)
    apps = loader.project_state().apps
    with connection.schema_editor() as editor:
        editor.create_model(recorder.Migration)
        for model in apps.get_models():
            if model._meta.can_migrate(connection):
                editor.create_model(model)
        for step in _needed(loader):
            step.code(apps, editor)
        for app, name in loader.graph.nodes:
            recorder.record_applied(app, name)
    return True


def _needed(loader: MigrationLoader) -> list[Any]:
    """Steps that fill tables, in the order of their migrations."""
    plan = {key: None for leaf in loader.graph.leaf_nodes() for key in loader.graph.forwards_plan(leaf)}
    operations = [operation for key in plan for operation in loader.graph.nodes[key].operations]
    return [each for each in operations if isinstance(each, RunPython) and not each.elidable]
