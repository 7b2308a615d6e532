import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0001_initial'),
        ('telemetry', '0002_durable_numbers'),
    ]

    operations = [
        migrations.CreateModel(
            name='Chunk',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('column', models.CharField(max_length=16)),
                ('rank', models.PositiveIntegerField()),
                ('number', models.PositiveIntegerField()),
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
            name='Rollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rank', models.PositiveIntegerField()),
                ('number', models.PositiveIntegerField()),
                ('by_1000', models.BinaryField()),
                ('by_100', models.BinaryField()),
                ('by_10', models.BinaryField()),
            ],
        ),
        migrations.RemoveIndex(
            model_name='report',
            name='telemetry_r_job_id_1234b5_idx',
        ),
        migrations.AlterField(
            model_name='cursor',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='cursors', to='jobs.job'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='evaluations', to='jobs.job'),
        ),
        migrations.AlterField(
            model_name='rawevent',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='events', to='jobs.job'),
        ),
        migrations.AlterField(
            model_name='report',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='reports', to='jobs.job'),
        ),
        migrations.AddIndex(
            model_name='rawevent',
            index=models.Index(fields=['job', 'id'], name='events_as_written'),
        ),
        migrations.AddIndex(
            model_name='report',
            index=models.Index(fields=['job', 'id'], name='reports_as_written'),
        ),
        migrations.AddField(
            model_name='chunk',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='chunks', to='jobs.job'),
        ),
        migrations.AddField(
            model_name='rollup',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='rollups', to='jobs.job'),
        ),
        migrations.AddConstraint(
            model_name='chunk',
            constraint=models.UniqueConstraint(fields=('job', 'column', 'rank', 'number'), name='one_chunk_per_column'),
        ),
        migrations.AddConstraint(
            model_name='rollup',
            constraint=models.UniqueConstraint(fields=('job', 'rank', 'number'), name='one_rollup_per_stretch'),
        ),
    ]
