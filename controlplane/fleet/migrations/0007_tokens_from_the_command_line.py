"""Records which enrolment tokens the command line created."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column; who created an earlier token without a user is not known."""

    dependencies = [
        ("fleet", "0006_agents_run_scripts"),
    ]

    operations = [
        migrations.AddField(
            model_name="enrolmenttoken",
            name="from_command_line",
            field=models.BooleanField(default=False),
        ),
    ]
