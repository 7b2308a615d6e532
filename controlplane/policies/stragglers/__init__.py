"""Which worker is slow, with the evidence; what is done about it is the batching policy's affair."""
