"""The vocabulary of privacy: noise, curves, budgets, votes, releases and sealed values."""

from .. import _lazy

_HOME = {
    "budget": "Accountant Budget",
    "directions": "public_directions",
    "noise": "noise",
    "rdp": "DEFAULT_ORDERS RdpCurve",
    "relation": "Relation",
    "release": "Cost NoiseLevel Release SILENT describe",
    "sealed": "Sealed",
    "votes": "LabelVotes OneOf Scores SetOf Unit Votes",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
