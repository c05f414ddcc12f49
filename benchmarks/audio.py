"""Clips per second from wav files to stored log-Mel pictures, the second run, and memory as clips go by.

    python benchmarks/audio.py [--clips 200] [--jobs 2]

Ten-second clips at 44.1 kHz, 16 bit, made up (seed 7), the published settings. Wall and CPU time are both
printed: on a busy machine the first says little. CPU time of workers is counted when they have ended.
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.io import wavfile

from tellers.data.sound import Features, log_mel, make_sound, prepare_clips, stream_clips

RATE, SECONDS = 44_100, 10.0


def cpu() -> float:
    """Return the CPU seconds of this process and of those that have ended."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def resident() -> float:
    """Return the memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def write_clips(folder: Path, n_clips: int) -> list[Path]:
    """Write different clips quickly: a few sounds, each shifted and scaled in many ways."""
    sounds = [
        make_sound(name, 7, rate=RATE, seconds=SECONDS) for name in ("bell", "engine", "siren", "voice")
    ]
    paths = []
    for number in range(n_clips):
        clip = np.roll(sounds[number % 4], 997 * number) * (0.5 + 0.5 / (1 + number))
        paths.append(folder / f"{number:06d}.wav")
        wavfile.write(paths[-1], RATE, np.round(clip * 32767).astype(np.int16))
    return paths


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--clips", type=int, default=200)
    options.add_argument("--jobs", type=int, default=2)
    chosen = options.parse_args()
    clip = make_sound("siren", 7, rate=RATE, seconds=SECONDS)
    log_mel(clip)
    start = time.process_time()
    for _ in range(20):
        log_mel(clip)
    print(f"log-Mel alone, one core          {20 / (time.process_time() - start):8.0f} clips per CPU second")
    with tempfile.TemporaryDirectory() as place:
        paths = write_clips(Path(place), chosen.clips)
        store = Path(place) / "store"
        # Starting processes takes about a second, once, and is no part of a rate.
        prepare_clips(paths[: 2 * chosen.jobs], Path(place) / "first", n_jobs=chosen.jobs)
        took = []
        for name in ("wav to stored picture", "the same again"):
            wall, used = time.perf_counter(), cpu()
            found = prepare_clips(paths, store, n_jobs=chosen.jobs)
            assert len(found) == len(paths)
            wall, used = time.perf_counter() - wall, cpu() - used
            took.append(wall)
            print(
                f"{name:<22} {chosen.jobs} jobs    {len(paths) / wall:8.0f} clips per second,"
                f" {1000 * used / len(paths):.2f} CPU ms each"
            )
        print(f"second run                       {took[0] / took[1]:8.0f} times faster")
        features, seen = Features(), []
        for n_clips in (1, 4):
            for _ in stream_clips(paths * n_clips, store, features=features, recheck=True):
                pass
            seen.append(resident())
        print(
            f"memory after {len(paths)} and {4 * len(paths)} more clips, one process"
            f"   {seen[0]:.1f} and {seen[1]:.1f} MB"
        )


if __name__ == "__main__":
    main()
