"""`make torture`: what is promised of long runs, tried again and again (docs/explanation/reliability.md)."""
