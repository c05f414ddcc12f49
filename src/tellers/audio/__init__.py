"""Sound: recordings to log-Mel pictures, labelled clips, and how they are dealt to teachers.

Public names are loaded when first used: what trains networks does not load what decodes files.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Clips": "clips",
    "Deal": "dealing",
    "Decoding": "decoding",
    "Features": "store",
    "Finding": "decoding",
    "Kind": "decoding",
    "LogMel": "logmel",
    "Mixtures": "mixtures",
    "Ontology": "ontology",
    "Prepared": "prepare",
    "deal_clips": "dealing",
    "deal_experiments": "dealing",
    "deal_table": "dealing",
    "decode": "decoding",
    "log_mel": "logmel",
    "make_city": "generator",
    "make_sound": "generator",
    "mel_filters": "logmel",
    "mix_within": "mixtures",
    "prepare_clips": "prepare",
    "read_audioset": "layouts",
    "read_clip_folder": "layouts",
    "read_esc": "layouts",
    "read_fsd50k": "layouts",
    "read_ontology": "ontology",
    "read_urbansound": "layouts",
    "stream_clips": "prepare",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tellers.audio' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__]
