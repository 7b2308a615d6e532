"""Stores static files under hashed names, with the hashed names also in imports of Paceline's modules.

A module that a page loads under its hashed name and another module imports under its plain name would run twice: each
of its listeners would be registered twice, and a button would send two requests.
"""

from typing import Final

from servestatic.storage import CompressedManifestStaticFilesStorage

IMPORTS: Final = ("paceline/*.js", ((r"""(?P<matched>from "(?P<url>\./[^"]+)";)""", 'from "%(url)s";'),))
"""Django's own expressions also match comments of other packages' files, which name files that do not exist."""


class HashedFiles(CompressedManifestStaticFilesStorage):
    """Rewrites imports, too."""

    patterns = (*CompressedManifestStaticFilesStorage.patterns, IMPORTS)
