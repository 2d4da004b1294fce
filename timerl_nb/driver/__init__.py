"""Driver of a compilation: runs the stages in order, caches them, and returns a `Program`.

Entry points: `compiling_context.Context.compile` and `program.Program`, a façade over functions of one
immutable value, `compilation.Compilation`: `program_compilation` compiles, `stage_artifacts` and
`program_warnings` inspect, `program_variation` asks for variants, `program_runs` runs. `compiling` runs
and caches the stages; `search` looks for a plan within a memory budget.
"""
