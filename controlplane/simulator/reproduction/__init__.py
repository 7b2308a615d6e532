"""The headlines of the four papers: the claim, the runs that test it here, and the verdict by one rule for all."""
