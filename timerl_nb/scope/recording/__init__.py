"""Recording of a run: sessions, annotations, child processes and threads."""
