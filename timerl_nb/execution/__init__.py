"""Runs in progress: control, telemetry, logging and results, for programs and trainings."""
