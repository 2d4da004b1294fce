"""Shared parts of the commands: argument parsing, run requests, scripts, exit statuses."""
