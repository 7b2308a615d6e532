"""Measures the engine, the simulator, predictors and detectors alone, without a control plane."""
