"""Rematerialisation: values computed again near their uses instead of stored."""
