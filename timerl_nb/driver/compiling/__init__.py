"""Stages of one compilation, their caches, and the options that depend on the machine.

Entry point: `compiler.Compiler`, which runs and caches the stages of one source graph. `pass_selection` and
`compile_pipeline` make the passes and the schedule, `memory_stage` and `planned_program` the stages behind.
"""
