"""The number up to which a process's messages are stored is called a message cursor."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("jobs", "0001_initial"),
        ("telemetry", "0008_reports_in_batches"),
    ]

    operations = [
        migrations.RenameModel(old_name="Spoken", new_name="MessageCursor"),
        migrations.AlterField(
            model_name="messagecursor",
            name="job",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="message_cursors",
                to="jobs.job",
            ),
        ),
    ]
