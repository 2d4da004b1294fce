"""Views of runs, kernel streams, collectors, replay and device assignments."""
