"""Which votes on labels a mechanism takes, refused before any noise is drawn."""

from typing import Any

from ...privacy.votes import SetOf, Unit, require_votes_on


def require_label_votes(mechanism: Any, votes: Any) -> None:
    """Refuse votes of another kind, on other labels or in other units; nothing is drawn before."""
    name = type(mechanism).__name__
    require_votes_on("labels", votes, name)
    if votes.n_labels != mechanism.n_labels:
        raise ValueError(
            f"Expected votes on the {mechanism.n_labels} labels of {name}, got {votes.n_labels}. "
            f"Declare n_labels={votes.n_labels}."
        )
    wanted = getattr(mechanism, "votes_resolution", mechanism.resolution)
    if votes.resolution != wanted:
        kind = "of 0 and 1" if wanted == 1 else f"in units of 1/{wanted}"
        raise ValueError(
            f"Expected votes {kind} for {name}, got units of 1/{votes.resolution}. Use "
            "LabelVotes.from_probabilities to turn probabilities into 0 and 1, or state the resolution."
        )
    if votes.voters is not None and not getattr(mechanism, "lets_abstain", False):
        votes.require_all_labels(name)
    votes.space.require_unit(votes.unit)


def require_one_ballot(unit: Unit) -> None:
    """Refuse units that move several ballots or heavier ones: label votes have one ballot each."""
    SetOf(1).require_unit(unit)
