"""Polyhedral dependence graph (PDG): operations, reads, types, text form and verifier.

`dependence_graph.Pdg` is an immutable value. `graph_rewriting.Edit` creates changed copies, and
`graph_verifier` checks each of them. `reference` evaluates a graph slowly, and defines its meaning. Source:
TimeRL §4 and §5.1.
"""
