"""Sound: teachers of clips, students that tag recordings, sweeps over stored votes, and their pages."""

from ... import _lazy

_HOME = {
    "..nn.networks": "network_factory",
    "..nn.tagger": "AudioClassifier AudioTagger audio_classifier",
    "..nn.weights": "load_pretrained",
    ".report.sweep": "draw_flips draw_sweep flip_buckets noiseless_table sweep_table",
    ".sweeps": "SweepRow SweepSetting sweep sweep_settings",
    "splitting": "Deal Mixtures deal_clips deal_experiments deal_statistics deal_table mix_within",
    "tagging": "Hearing Tagged load_hearing",
    "teaching": "Taught Teaching read_taught student_config teach teach_student",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
