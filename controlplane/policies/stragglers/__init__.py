"""Which worker is slow, with the evidence. The batching policy decides what to do about it."""
