"""Small tables and the files they are read from, for all tests of neighbouring tables."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
