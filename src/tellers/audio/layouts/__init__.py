"""Data sets as they are published: each layout is one file here, and every one of them gives `Clips`."""

from .audioset import read_audioset
from .esc import read_esc
from .folder import read_clip_folder
from .fsd50k import read_fsd50k
from .urbansound import read_urbansound

__all__ = ["read_audioset", "read_clip_folder", "read_esc", "read_fsd50k", "read_urbansound"]
