"""Which Redis the control plane works with: the one table of the live driver's own."""

from django.db import models


class KnownRedis(models.Model):
    """A Redis that held the logs of this database's jobs; the last one made is the present one."""

    identity = models.CharField(max_length=40, unique=True)
    met_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.identity
