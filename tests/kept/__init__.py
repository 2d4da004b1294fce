"""Folders as older versions have written them, which must stay readable."""
