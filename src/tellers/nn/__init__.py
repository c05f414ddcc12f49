"""Torch, for teachers, students and sound: one training loop, networks, views, checkpoints. All private."""

from importlib.util import find_spec

from ..errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for networks, found none: pip install 'tellers[torch]'")
