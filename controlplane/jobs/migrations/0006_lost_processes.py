"""A process that is gone is called lost, in rows, decisions and findings alike."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from controlplane.core.states import ProcessState


def rename(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Whatever says "dead" says "lost" from now on."""
    processes, flags, notes, decisions = (
        apps.get_model("jobs", name) for name in ("Process", "Flag", "FlagNote", "Decision")
    )
    processes.objects.filter(state="dead").update(state="lost")
    for model in (flags, notes):
        model.objects.filter(kind="dead").update(kind="lost")
    for name, kind in (("state", "move-process"), ("kind", "raise-flag")):
        for row in decisions.objects.filter(kind=kind, **{f"payload__{name}": "dead"}).iterator():
            row.payload[name] = "lost"
            row.save(update_fields=["payload"])


class Migration(migrations.Migration):
    dependencies = [("jobs", "0005_requests_and_notes")]

    operations = [
        migrations.AlterField(
            model_name="process",
            name="state",
            field=models.CharField(choices=[(state, state) for state in ProcessState], max_length=12),
        ),
        migrations.RunPython(rename, migrations.RunPython.noop),
    ]
