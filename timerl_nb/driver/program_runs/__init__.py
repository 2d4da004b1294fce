"""Runs of a compiled program: checks before the first iteration, execution, stepping, timing.

Entry points: `program_run.run_to_end` and `program_run.start_run`. Input: a `Compilation` and `RunInputs`.
Output: a `Result`, or a handle on a run in progress (`execution`). `run_in_folder` saves and resumes.
"""
