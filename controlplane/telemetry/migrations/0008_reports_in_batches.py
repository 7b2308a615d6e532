"""Reports are stored in batches of columns. Rows that are folded are in chunks already; the others become batches."""

from datetime import UTC

import django.db.models.deletion
import msgspec
import numpy as np
from django.db import migrations, models

ROWS = 1_000
WHOLE = ("rank", "iteration", "generation", "position", "samples", "overran")
MEASURED = ("loss", "data_s", "compute_s", "push_s", "pull_s", "waiting_s", "coordination_s", "cpu", "memory")


def store_batches(apps, schema_editor):
    """Store the rows that are not folded, as ``telemetry.batches`` does in this release."""
    reports, folded = apps.get_model("telemetry", "Report"), apps.get_model("telemetry", "Folded")
    marks = dict(folded.objects.values_list("job_id", "batch_id"))
    folded.objects.update(batch_id=0)
    for job in reports.objects.order_by().values_list("job_id", flat=True).distinct():
        mark = marks.get(job, 0)
        while rows := list(reports.objects.filter(job_id=job, id__gt=mark).order_by("id")[:ROWS]):
            apps.get_model("telemetry", "ReportBatch").objects.create(job_id=job, reports=len(rows), data=_encoded(rows))
            mark = rows[-1].pk


def _encoded(rows):
    places = {}
    columns = {"instance": [places.setdefault(row.instance, len(places)) for row in rows]}
    columns["at_ms"] = [round(row.at.astimezone(UTC).timestamp() * 1000) for row in rows]
    columns |= {name: [getattr(row, name) for row in rows] for name in WHOLE}
    whole = {name: np.array(values, "<i8") for name, values in columns.items()}
    measured = {name: [getattr(row, name) for row in rows] for name in MEASURED}
    measured |= {name: [row.others.get(name) for row in rows] for name in {name for row in rows for name in row.others}}
    floats = {name: np.array(values, "<f8") for name, values in measured.items()}
    known = {name: values for name, values in floats.items() if not np.isnan(values).all()}
    stored = {name: values.tobytes() for name, values in (whole | known).items()}
    return msgspec.msgpack.encode({"type": "reports-1", "instances": list(places), "columns": stored})


class Migration(migrations.Migration):

    dependencies = [
        ("jobs", "0001_initial"),
        ("telemetry", "0007_logged_series"),
    ]

    operations = [
        migrations.CreateModel(
            name="ReportBatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reports", models.PositiveIntegerField()),
                ("data", models.BinaryField()),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="report_batches",
                        to="jobs.job",
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["job", "id"], name="batches_as_written")]},
        ),
        migrations.RenameField(model_name="folded", old_name="report_id", new_name="batch_id"),
        migrations.RunPython(store_batches, migrations.RunPython.noop, elidable=True),
        migrations.DeleteModel(name="Report"),
    ]
