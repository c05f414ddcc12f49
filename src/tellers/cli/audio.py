"""`tellers audio`: from recordings to a student that tags them."""

from .audio_deal import deal
from .audio_prepare import prepare
from .audio_student import student
from .audio_sweep import sweep
from .audio_tag import tag
from .audio_train import train

HELP = """From recordings to a student that tags them, with a budget.

prepare makes pictures of recordings, deal shows how they would be dealt, train deals them to teachers and
keeps what these say of a public pool, sweep shows what settings would make of it, student releases labels
within a budget and teaches, and tag uses the student.
Nothing needs a download: prepare --made makes a city up.

Example:

\b
tellers audio prepare --made 1000 --out city
tellers audio train city --out ears --teachers 30
tellers audio student ears --out study --epsilon 8 --delta 1e-4
tellers audio tag city/sounds/city-000001.wav --student study
"""

COMMANDS = {
    "prepare": prepare, "deal": deal, "train": train, "sweep": sweep, "student": student, "tag": tag,
}  # fmt: skip
