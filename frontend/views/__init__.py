"""Pages: each view reads through ``frontend.queries`` and renders; all changes go through REST."""
