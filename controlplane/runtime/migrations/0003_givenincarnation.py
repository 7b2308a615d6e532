import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial"), ("runtime", "0002_forecast")]

    operations = [
        migrations.CreateModel(
            name="GivenIncarnation",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="given_incarnation",
                        serialize=False,
                        to="jobs.job",
                    ),
                ),
                ("number", models.PositiveIntegerField(default=0)),
            ],
        ),
    ]
