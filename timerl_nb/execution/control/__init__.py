"""Control of runs: worker threads, pause and stop, periodic saving, resuming."""
