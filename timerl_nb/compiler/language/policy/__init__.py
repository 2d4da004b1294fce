"""Policy of a program: the slice of its graph between an observation and an action (ADR 056)."""
