"""Recordings: decoding, log-Mel spectrograms, published layouts, and folders of prepared clips."""

from ... import _lazy

_HOME = {
    "Collection": "..clips",
    "Decoding": ".decoding",
    "Features": ".prepare",
    "Finding": ".decoding",
    "Kind": ".decoding",
    "LogMel": ".logmel",
    "Ontology": ".ontology",
    "Prepared": ".prepare",
    "decode": ".decoding",
    "features_for": ".collection",
    "log_mel": ".logmel",
    "make_city": ".generator",
    "make_sound": ".generator",
    "mel_filters": ".logmel",
    "prepare_clips": ".prepare",
    "prepare_collection": ".collection",
    "read_audioset": ".layouts",
    "read_clip_folder": ".layouts",
    "read_collection": "..clips",
    "read_esc": ".layouts",
    "read_fsd50k": ".layouts",
    "read_ontology": ".ontology",
    "read_urbansound": ".layouts",
    "stream_clips": ".prepare",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
