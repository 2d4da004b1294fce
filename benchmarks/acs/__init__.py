"""Evaluation of ACS (paper 004): recorded workloads, simulated figures."""
