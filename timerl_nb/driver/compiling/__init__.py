"""Stages of one compilation, their caches, and machine-dependent options.

The entry point is `compiler.Compiler`, which runs and caches the stages of one source graph.
`pass_selection` and `compile_pipeline` produce the passes and the schedule; `memory_stage` and
`planned_program` produce the later stages.
"""
