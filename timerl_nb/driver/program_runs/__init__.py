"""Runs of a compiled program: checks before the first iteration, execution, stepping, timing.

Entry points are `program_run.run_to_end` and `program_run.start_run`. They take a `PreparedRun`, and return
a `Result`, or a handle on a background run. `run_in_folder` saves and resumes runs.
"""
