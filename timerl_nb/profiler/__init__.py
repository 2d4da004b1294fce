"""Profile of one run, per statement or call: `trl.profile(program)`."""

from timerl_nb.profiler.run_profile import Profile, Row, profile

__all__ = ["Profile", "Row", "profile"]
