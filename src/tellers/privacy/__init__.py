"""The vocabulary of privacy: noise, curves, budgets, votes, releases and sealed values."""

from .. import _lazy

_HOME = {
    "noise": ".noise",
    "Accountant": ".budget",
    "Budget": ".budget",
    "Cost": ".release",
    "DEFAULT_ORDERS": ".rdp",
    "LabelVotes": ".votes",
    "NoiseLevel": ".release",
    "OneOf": ".votes",
    "RdpCurve": ".rdp",
    "Relation": ".relation",
    "Release": ".release",
    "SILENT": ".release",
    "Scores": ".votes",
    "Sealed": ".sealed",
    "SetOf": ".votes",
    "Unit": ".votes",
    "Votes": ".votes",
    "describe": ".release",
    "public_directions": ".directions",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
