"""Recordings: decoding, log-Mel spectrograms, published layouts, and folders of prepared clips."""

from ... import _lazy

_HOME = {
    ".clips": "Collection read_collection",
    "collection": "features_for prepare_collection",
    "decoding": "Decoding Finding Kind decode",
    "generator": "make_city make_sound",
    "layouts": "read_audioset read_clip_folder read_esc read_fsd50k read_urbansound",
    "logmel": "LogMel log_mel mel_filters",
    "ontology": "Ontology read_ontology",
    "prepare": "Features Prepared prepare_clips stream_clips",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
