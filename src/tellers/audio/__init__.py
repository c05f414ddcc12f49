"""Sound: recordings to log-Mel pictures, clips dealt to teachers, and networks that tag them.

Public names are loaded when first used: what trains networks does not load what decodes files.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "AudioClassifier": "classifier",
    "AudioTagger": "tagger",
    "Clips": "clips",
    "Collection": "collection",
    "Deal": "dealing",
    "Decoding": "decoding",
    "Features": "store",
    "Finding": "decoding",
    "Hearing": "hearing",
    "Kind": "decoding",
    "LogMel": "logmel",
    "Mixtures": "mixtures",
    "Ontology": "ontology",
    "Prepared": "prepare",
    "SweepRow": "sweep",
    "SweepSetting": "sweep_setting",
    "Tagged": "hearing",
    "Taught": "taught",
    "Teaching": "teaching",
    "deal_clips": "dealing",
    "deal_experiments": "dealing",
    "deal_statistics": "statistics",
    "deal_table": "dealing",
    "decode": "decoding",
    "draw_flips": "sweep_report",
    "draw_sweep": "sweep_report",
    "features_for": "collection",
    "flip_buckets": "sweep_report",
    "load_hearing": "hearing",
    "load_pretrained": "networks",
    "log_mel": "logmel",
    "make_city": "generator",
    "make_sound": "generator",
    "mel_filters": "logmel",
    "mix_within": "mixtures",
    "network_factory": "networks",
    "noiseless_table": "sweep_report",
    "prepare_clips": "prepare",
    "prepare_collection": "collection",
    "read_audioset": "layouts",
    "read_clip_folder": "layouts",
    "read_collection": "collection",
    "read_esc": "layouts",
    "read_fsd50k": "layouts",
    "read_ontology": "ontology",
    "read_taught": "taught",
    "read_urbansound": "layouts",
    "stream_clips": "prepare",
    "student_config": "listening",
    "sweep_settings": "sweep_setting",
    "sweep_table": "sweep_report",
    "teach": "taught",
    "teach_student": "listening",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tellers.audio' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__]
