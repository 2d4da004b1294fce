"""`make torture`: stress tests of long runs (docs/explanation/reliability.md)."""
