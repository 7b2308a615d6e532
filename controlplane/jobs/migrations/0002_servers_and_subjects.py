from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='flag',
            name='subject',
            field=models.CharField(default='worker', max_length=6),
        ),
        migrations.AddField(
            model_name='process',
            name='blocks',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='process',
            name='held_bytes',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='process',
            name='pull_s',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='process',
            name='push_s',
            field=models.FloatField(null=True),
        ),
    ]
