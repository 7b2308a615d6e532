"""Rollups name their columns, so that they stay readable after others were added."""

from django.db import migrations

FORMAT, ITEM_BYTES = b"rollup\x00\x01", 8
NAMES = (
    "at_ms,samples,loss,compute_s,push_s,pull_s,waiting_s,coordination_s,cpu,memory,scored_samples,scored_loss"
)
"""The columns of every rollup until now."""

WIDTHS = ("by_1000", "by_100", "by_10")


def header():
    said = NAMES.encode()
    said += b" " * (-len(said) % ITEM_BYTES)
    return FORMAT + len(said).to_bytes(ITEM_BYTES, "little") + said


def name_columns(apps, schema_editor):
    rollups = apps.get_model("telemetry", "Rollup")
    for row in rollups.objects.iterator(chunk_size=200):
        for name in WIDTHS:
            data = bytes(getattr(row, name))
            if data and not data.startswith(FORMAT):
                setattr(row, name, header() + data)
        row.save(update_fields=WIDTHS)


def take_names_away(apps, schema_editor):
    rollups = apps.get_model("telemetry", "Rollup")
    for row in rollups.objects.iterator(chunk_size=200):
        for name in WIDTHS:
            setattr(row, name, bytes(getattr(row, name)).removeprefix(header()))
        row.save(update_fields=WIDTHS)


class Migration(migrations.Migration):

    dependencies = [
        ("telemetry", "0002_squashed_0007_engine_snapshots"),
    ]

    operations = [migrations.RunPython(name_columns, take_names_away, elidable=True)]
