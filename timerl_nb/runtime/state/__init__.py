"""State of runs on disk: checkpoints, run folders, progress, caches."""
