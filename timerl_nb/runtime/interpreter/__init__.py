"""Interpreter: runs a loop nest one kernel at a time, as generated Python."""
