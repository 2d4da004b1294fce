"""Telemetry of runs: frames for live views, metrics of the process, progress bars."""
