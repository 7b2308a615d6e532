from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0003_teams_and_order'),
    ]

    operations = [
        migrations.AddField(
            model_name='process',
            name='machine',
            field=models.JSONField(null=True),
        ),
    ]
