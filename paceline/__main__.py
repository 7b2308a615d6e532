"""``python -m paceline``: the console command, in a checkout too."""

import sys

from paceline.cli.places import missing_package

try:
    from paceline.cli.main import main
except ModuleNotFoundError as error:
    sys.exit(missing_package(error))

if __name__ == "__main__":
    main()
