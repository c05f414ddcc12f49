"""Where the tests find published data, if anywhere."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def published():
    """Return a function that gives the data directory if it has a folder, and skips the test if not."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    named = os.environ.get("TELLERS_DATA")
    places = [Path(named)] if named else [beside]

    def directory(folder):
        for place in places:
            if (place / folder).is_dir():
                return place
        pytest.skip(f"no {folder}/ in {places[0]}: set TELLERS_DATA to try the published files")

    return directory
