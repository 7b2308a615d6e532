"""Migrations of notes, tags and saved views."""
