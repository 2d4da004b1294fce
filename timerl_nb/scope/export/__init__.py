"""Export of recordings to other formats."""
