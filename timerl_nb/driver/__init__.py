"""Driver of a compilation: runs the stages in order, caches them, and returns a `Program`.

Entry points: `compiling_context.Context.compile` and `program.Program`. `compiler` caches stages under
the options they depend on; `search` looks for a plan within a memory budget.
"""
