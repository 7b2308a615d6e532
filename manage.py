#!/usr/bin/env python
"""Django's command line: ``python manage.py help`` lists what there is."""

import os
import sys


def main() -> None:
    """Run the command that the arguments name."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
