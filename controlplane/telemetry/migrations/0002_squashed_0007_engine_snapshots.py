"""The stored history of jobs: events, reports and what is folded from them, cursors and snapshots."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('jobs', '0001_initial'),
        ('telemetry', '0001_squashed_0008_simulation_variations'),
    ]

    operations = [
        migrations.CreateModel(
            name='EngineSnapshot',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='engine_snapshot', serialize=False, to='jobs.job')),
                ('cursor', models.CharField(max_length=40)),
                ('sequence', models.BigIntegerField()),
                ('incarnation', models.PositiveIntegerField()),
                ('version', models.CharField(max_length=20)),
                ('data', models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name='Folded',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='folded', serialize=False, to='jobs.job')),
                ('report_id', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='Chunk',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('column', models.CharField(max_length=16)),
                ('rank', models.PositiveIntegerField()),
                ('number', models.PositiveIntegerField()),
                ('data', models.BinaryField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='chunks', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'column', 'rank', 'number'), name='one_chunk_per_column')],
            },
        ),
        migrations.CreateModel(
            name='Cursor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('stream', models.CharField(max_length=10)),
                ('incarnation', models.PositiveIntegerField(default=0)),
                ('position', models.CharField(default='0-0', max_length=40)),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='cursors', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'stream'), name='one_cursor_per_stream')],
            },
        ),
        migrations.CreateModel(
            name='Evaluation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('iteration', models.PositiveIntegerField()),
                ('at', models.DateTimeField()),
                ('elapsed_s', models.FloatField()),
                ('loss', models.FloatField(null=True)),
                ('accuracy', models.FloatField(null=True)),
                ('samples', models.PositiveIntegerField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='evaluations', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'iteration'), name='one_row_per_evaluation')],
            },
        ),
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
        migrations.CreateModel(
            name='RawEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('incarnation', models.PositiveIntegerField()),
                ('stream_id', models.CharField(max_length=40)),
                ('kind', models.CharField(max_length=30)),
                ('payload', models.BinaryField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='jobs.job')),
            ],
            options={
                'indexes': [models.Index(fields=['job', 'id'], name='events_as_written')],
                'constraints': [models.UniqueConstraint(fields=('job', 'incarnation', 'stream_id'), name='one_row_per_event')],
            },
        ),
        migrations.CreateModel(
            name='Report',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rank', models.PositiveIntegerField()),
                ('instance', models.CharField(max_length=100)),
                ('generation', models.PositiveIntegerField()),
                ('iteration', models.PositiveIntegerField()),
                ('at', models.DateTimeField()),
                ('samples', models.PositiveIntegerField()),
                ('position', models.BigIntegerField()),
                ('loss', models.FloatField(null=True)),
                ('compute_s', models.FloatField()),
                ('push_s', models.FloatField()),
                ('pull_s', models.FloatField()),
                ('waiting_s', models.FloatField()),
                ('coordination_s', models.FloatField()),
                ('cpu', models.FloatField()),
                ('memory', models.FloatField()),
                ('overran', models.BooleanField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='reports', to='jobs.job')),
            ],
            options={
                'indexes': [models.Index(fields=['job', 'id'], name='reports_as_written')],
                'constraints': [models.UniqueConstraint(fields=('job', 'instance', 'generation', 'iteration'), name='one_row_per_report')],
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rank', models.PositiveIntegerField()),
                ('number', models.PositiveIntegerField()),
                ('by_1000', models.BinaryField()),
                ('by_100', models.BinaryField()),
                ('by_10', models.BinaryField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='rollups', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'rank', 'number'), name='one_rollup_per_stretch')],
            },
        ),
        migrations.CreateModel(
            name='Spoken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('instance', models.CharField(max_length=100)),
                ('number', models.PositiveBigIntegerField()),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='spoken', to='jobs.job')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'instance'), name='one_number_per_instance')],
            },
        ),
    ]
