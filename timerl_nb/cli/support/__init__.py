"""Shared parts of commands: argument parsing, run requests, scripts, exit statuses."""
