"""``python -m workers``: the commands of a machine that takes part."""

from workers.cli import app

if __name__ == "__main__":
    app(prog_name="python -m workers")
