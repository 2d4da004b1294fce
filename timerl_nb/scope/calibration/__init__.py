"""Calibration: overhead of recording, and its correction (RL-Scope, appendix C)."""
