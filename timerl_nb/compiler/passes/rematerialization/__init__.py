"""Rematerialisation: values recomputed near their uses instead of stored."""
