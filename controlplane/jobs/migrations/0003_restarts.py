from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0002_servers_and_subjects'),
    ]

    operations = [
        migrations.AddField(
            model_name='process',
            name='counts_from',
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name='process',
            name='restart',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='process',
            name='wants_slot',
            field=models.BooleanField(default=False),
        ),
    ]
