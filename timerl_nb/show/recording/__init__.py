"""Views of recordings: breakdowns, timelines and figures."""
