"""`python -m colligate`: the command line."""

import sys

from colligate.cli import main

if __name__ == "__main__":
    sys.exit(main())
