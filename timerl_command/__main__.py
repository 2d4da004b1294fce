"""`python -m timerl_command` is `timerl`, which begins at once."""

import sys

from timerl_command import main

if __name__ == "__main__":
    sys.exit(main())
