"""Analyses of a recording: time breakdown, transitions, critical path, comparison."""
