"""Scripts as a user of each library would write them. ``emulate`` slows the machine down; ``score`` evaluates."""
