"""Tests that need a GPU: skipped elsewhere, all with the same sentence."""

import pytest
import torch

NO_GPU = "this machine has no GPU: tests of GPUs are skipped"

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)
needs_two_gpus = pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="this machine has one GPU: tests of several are skipped" if torch.cuda.device_count() else NO_GPU,
)
