"""Logs of runs: a row for each iteration, in a folder or an external logger."""
