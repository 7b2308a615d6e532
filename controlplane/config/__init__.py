"""Settings and entry points: imports everything, and no module imports it.

Importing the settings imports this package, and so makes our Celery app the one that every ``shared_task`` belongs to.
"""

from controlplane.config.celery import app as celery_app

__all__ = ["celery_app"]
