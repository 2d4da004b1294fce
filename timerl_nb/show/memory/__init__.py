"""Memory views: live bytes over time, whole runs, storage of tensors."""
