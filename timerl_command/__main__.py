"""`python -m timerl_command` runs the command `timerl`."""

import sys

from timerl_command import main

if __name__ == "__main__":
    sys.exit(main())
