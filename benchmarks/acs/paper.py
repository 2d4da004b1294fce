"""Figures that the text of the ACS paper states. None marks values given only in a picture."""

from __future__ import annotations

from typing import Final

# Sections I, II-B and II-D; figures 2, 7 and 9.
OCCUPANCY_SIMULATIONS: Final = 0.34
OCCUPANCY_INSTANAS: Final = 0.39
CONSTRUCTION: Final = 0.47
# Section VI, as (mean, maximum): figures 22, 25 and 27.
SIMULATIONS: Final = {"acs-sw": (1.66, 1.79), "acs-hw": (None, 2.19)}
DYNAMIC: Final = {"acs-sw": (1.05, None), "acs-hw": (1.30, 1.39)}
STATIC: Final = {"acs-sw": (1.16, None), "acs-hw": (1.31, None)}
WINDOW: Final = 1.045  # figure 29: windows 32 and 16, simulated
PERSISTENT: Final = 1 / 1.35  # section VI-E, over the baseline
# Table II: ns by window size and number of segments.
CHECK: Final = {(16, 6): 410, (16, 10): 700, (32, 6): 510, (32, 10): 1640}
