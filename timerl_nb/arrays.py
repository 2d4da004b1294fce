"""What a NumPy array is called in types, whatever its shape and elements."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
