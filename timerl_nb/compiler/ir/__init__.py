"""The intermediate representation: operations, the polyhedral dependence graph, its meaning."""
