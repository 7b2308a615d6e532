"""``python -m benchmarks.live.load_process PART``: one of the processes of ``load_processes``, with Django set up."""

import sys

import django

if __name__ == "__main__":
    django.setup()
    from benchmarks.live.load_processes import play

    play(sys.argv[1], sys.stdin)
