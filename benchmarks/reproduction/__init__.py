"""Runs scenarios of the papers with real processes, for ``manage.py reproduce --live``."""
