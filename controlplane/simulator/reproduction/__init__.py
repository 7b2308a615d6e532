"""The headlines of the four papers: what each says, which runs show it here, and the verdict by one rule for all."""
