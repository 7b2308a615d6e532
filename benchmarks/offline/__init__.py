"""Measures the engine, the simulator, predictors and detectors by themselves, without a control plane."""
