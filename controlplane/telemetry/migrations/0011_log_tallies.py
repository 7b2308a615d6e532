"""A row per job that counts its log lines."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """A new table."""

    dependencies = [
        ("jobs", "0003_teams_and_order"),
        ("telemetry", "0010_simulations_have_an_owner"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogTally",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("lines", models.BigIntegerField(default=0)),
                ("dropped", models.BigIntegerField(default=0)),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="log_tally", to="jobs.job"
                    ),
                ),
            ],
        ),
    ]
