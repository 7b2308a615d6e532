"""Records which agents start scripts of jobs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column; agents report it with their next hello."""

    dependencies = [
        ("fleet", "0005_credentials_expire"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="runs_scripts",
            field=models.BooleanField(default=False),
        ),
    ]
