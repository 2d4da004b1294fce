"""Compilation driver: runs the stages in order, caches them, and returns a `Program`.

Users enter by `compiling_context.Context.compile` and by the methods of `program.Program`. Both call
functions of an immutable value, `compilation.Compilation`:

- `program_compilation` compiles;
- `stage_artifacts` and `program_warnings` inspect;
- `program_variation` changes bounds and options;
- `program_runs` runs.

The package `compiling` runs and caches the stages. The package `search` finds a plan within a memory
budget.
"""
