#!/usr/bin/env python
"""Django's command line: ``python manage.py help`` lists what there is."""

from controlplane.manage import main

if __name__ == "__main__":
    main()
