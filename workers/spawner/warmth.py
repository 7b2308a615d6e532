"""Imported by the spawner to preload modules that would take every worker and server a second to import.

The libraries and the main loops; scikit-learn, which reads datasets; and what torch imports only with its first
optimizer. Not more: modules imported here are in the memory of every process, shared until they are written to.
"""

import sklearn.datasets
import torch

import workers.processes
import workers.server.main
import workers.trainer.loop

BROUGHT = (sklearn.datasets, workers.processes, workers.server.main, workers.trainer.loop)

torch.set_num_threads(1)  # before any operation: a thread pool would be lost in every fork
torch.optim.SGD([torch.zeros(1)], lr=1.0)
