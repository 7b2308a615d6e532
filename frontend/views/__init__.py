"""Views of pages: each reads through ``frontend.queries`` and renders; most changes go through REST."""
