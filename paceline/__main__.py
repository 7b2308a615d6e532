"""``python -m paceline``: the console command, in a checkout too."""

from paceline.cli.main import main

if __name__ == "__main__":
    main()
