"""Decode ESC-10 into one file, for a machine with a GPU that cannot decode recordings.

python experiments/audio/pack.py --data DIR --out FILE.npz        # DIR holds esc10.csv and audio/
"""

import argparse
from pathlib import Path

from sounds import pack_waves, read_waves

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    waves = read_waves(args.data)
    pack_waves(waves, args.out)
    print(f"{waves.clips!r}: {args.out.stat().st_size:,} bytes")
