"""`tellers audio`: from recordings to a student that tags them."""

from .audio_prepare import prepare
from .audio_student import student
from .audio_sweep import sweep
from .audio_tag import tag
from .audio_train import train

HELP = """From recordings to a student that tags them, with a budget.

prepare makes pictures of recordings, train deals them to teachers and keeps what these say of a public pool,
sweep shows what settings would make of it, student releases labels within a budget and teaches, and tag uses
the student. Nothing needs a download: prepare --made makes a city up.
"""

COMMANDS = {"prepare": prepare, "train": train, "sweep": sweep, "student": student, "tag": tag}
