"""Calibration: overhead of recording, and its correction (RL-Scope, paper 002, appendix C)."""
