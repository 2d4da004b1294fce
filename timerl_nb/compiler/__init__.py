"""The compiler: from recurrence equations to a loop nest with a memory plan.

Stages in order: `language` records a graph (`ir`), `passes` transform it, `scheduling` orders it,
`memory` assigns its values to storage, and `loops` builds the loop nest. `symbolic` and `isl`
provide the mathematics. `timerl_nb.driver` runs the stages, and `timerl_nb.runtime` executes their
result. The papers are listed in docs/references.md.
"""
