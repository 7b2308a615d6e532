import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0003_restarts'),
        ('telemetry', '0003_chunks_and_rollups'),
    ]

    operations = [
        migrations.CreateModel(
            name='LogLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(max_length=6)),
                ('index', models.PositiveIntegerField()),
                ('instance', models.CharField(max_length=100)),
                ('at', models.DateTimeField()),
                ('level', models.CharField(max_length=7)),
                ('text', models.TextField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='log_lines', to='jobs.job')),
            ],
            options={
                'indexes': [models.Index(fields=['job', 'id'], name='lines_as_written')],
            },
        ),
    ]
