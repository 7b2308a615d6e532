"""Settings and entry points: this package imports the others, and no module imports it.

Importing the settings imports this package, which makes its Celery app the default one of every ``shared_task``.
"""

from controlplane.config.celery import app as celery_app

__all__ = ["celery_app"]
