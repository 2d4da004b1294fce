"""Recording views: breakdowns, timelines and figures of a profile."""
