"""Prioritised sampling: the sum tree and its implementations (003_bc3f8b946743a61e, §4.1)."""
