"""What a user of each library would write. The line with ``emulate`` makes the machine slow; ``score`` evaluates."""
