"""``python -m workers``: the commands of a training machine."""

from workers.cli import app

if __name__ == "__main__":
    app(prog_name="python -m workers")
