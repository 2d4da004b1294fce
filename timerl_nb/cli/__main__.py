"""`python -m timerl_nb.cli` runs the command `timerl`."""

import sys

from timerl_nb.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
