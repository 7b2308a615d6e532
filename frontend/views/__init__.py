"""Pages: each view reads through ``frontend.queries`` and renders; what changes anything goes through REST."""
