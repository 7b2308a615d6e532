"""Close codes: why a socket was ended, for machines."""

from typing import Final

MALFORMED: Final = 4400
UNAUTHORISED: Final = 4401
SLOW: Final = 4408
REPLACED: Final = 4409
JOB_OVER: Final = 4410
OVERSIZED: Final = 4413
TRY_AGAIN: Final = 1013
"""Redis is out of reach: come back, and say again what is not durable."""
