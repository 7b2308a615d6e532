from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0003_agent_environment'),
    ]

    operations = [
        migrations.AddField(
            model_name='agent',
            name='can_rotate',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='agent',
            name='next_digest',
            field=models.CharField(max_length=64, null=True, unique=True),
        ),
        migrations.AddField(
            model_name='agent',
            name='rotated_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='agent',
            name='rotation_asked_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='agent',
            name='rotation_failure',
            field=models.TextField(default=''),
        ),
    ]
