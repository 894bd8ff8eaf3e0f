"""The campaign's modules import each other by name, as they do where it runs as a script."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
