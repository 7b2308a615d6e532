"""Loads of devices; on a machine with a GPU, that of the real one as well."""

import numpy as np
import pytest
import torch

from controlplane.protocol.training import Workload
from workers.accelerator import Cuda, Processor, gauge_of
from workers.resources import Load
from workers.workloads.catalogue import load_workload
from workers.workloads.local import Local, pick_device

MACHINE = Load(cpu=0.3, memory=0.4)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def test_a_gpu_reports_its_own_memory_and_use() -> None:
    gauge = Cuda("cuda:0", memory=lambda device: (2, 8), utilisation=lambda: 0.9)
    assert gauge.load(MACHINE) == Load(cpu=0.9, memory=0.75)


def test_where_nobody_tells_the_use_it_is_that_of_the_machine() -> None:
    gauge = Cuda("cuda:0", memory=lambda device: (2, 8), utilisation=lambda: None)
    assert gauge.load(MACHINE) == Load(cpu=0.3, memory=0.75)


def test_a_processor_reports_the_machine() -> None:
    assert isinstance(gauge_of("cpu"), Processor)
    assert gauge_of("cpu").load(MACHINE) == MACHINE


def test_a_device_that_is_not_there_is_named_with_the_cure() -> None:
    with pytest.raises(ValueError, match=r"device 'quantum' cannot be used: .*; try --device auto or --device cpu"):
        pick_device("quantum")


@needs_gpu
def test_a_gpu_computes_the_same_sums() -> None:
    spec = Workload(name="cnn")
    here, there = load_workload(spec).replica(), load_workload(spec, Local(device="cuda")).replica()
    for replica in (here, there):
        replica.parameters[:] = load_workload(spec).init(7)
        replica.update(np.arange(40))
    np.testing.assert_allclose(there.gradient, here.gradient, rtol=1e-3, atol=1e-3)
