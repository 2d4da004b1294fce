"""Evaluation of the ACS paper: recorded workloads, simulated figures."""
