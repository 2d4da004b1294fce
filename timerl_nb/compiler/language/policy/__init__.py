"""Extraction of a program's policy: the slice of its graph between an observation and an action (ADR 056)."""
