"""Sound: teachers of clips, students that tag recordings, sweeps over stored votes, and their pages."""

from ... import _lazy

_HOME = {
    "AudioClassifier": "...nn.tagger",
    "AudioTagger": "...nn.tagger",
    "audio_classifier": "...nn.tagger",
    "Deal": ".splitting",
    "Hearing": ".tagging",
    "Mixtures": ".splitting",
    "SweepRow": "..sweeps",
    "SweepSetting": "..sweeps",
    "Tagged": ".tagging",
    "Taught": ".teaching",
    "Teaching": ".teaching",
    "deal_clips": ".splitting",
    "deal_experiments": ".splitting",
    "deal_statistics": ".splitting",
    "deal_table": ".splitting",
    "draw_flips": "..report.sweep",
    "draw_sweep": "..report.sweep",
    "flip_buckets": "..report.sweep",
    "load_hearing": ".tagging",
    "load_pretrained": "...nn.weights",
    "mix_within": ".splitting",
    "network_factory": "...nn.networks",
    "noiseless_table": "..report.sweep",
    "read_taught": ".teaching",
    "student_config": ".teaching",
    "sweep": "..sweeps",
    "sweep_settings": "..sweeps",
    "sweep_table": "..report.sweep",
    "teach": ".teaching",
    "teach_student": ".teaching",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
