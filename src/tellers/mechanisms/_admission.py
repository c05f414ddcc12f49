"""Which votes a mechanism admits, and which question is asked: told before anything is charged."""

import hashlib
import json
from typing import Any

import numpy as np

from ..privacy.votes import Scores, SetOf, Unit, require_votes_on
from .base import Mechanism, label_space
from .registry import answers_of


def is_multilabel(mechanism: Mechanism) -> bool:
    """Return whether a mechanism decides on many labels per query."""
    return answers_of(mechanism) == "labels"


def require_fit(mechanism: Mechanism, ensemble: Any, *, n_queries: int | None = None) -> None:
    """Refuse teachers that vote on something else, where they say what they vote on."""
    name, nothing = type(mechanism).__name__, "Nothing was charged."
    said_space = getattr(ensemble, "space", None)
    scored = getattr(said_space, "kind", None) == Scores.kind
    if said_space is not None and scored != (answers_of(mechanism) == Scores.kind):
        raise TypeError(
            f"Expected teachers that answer with {answers_of(mechanism)} for {name}, got votes on "
            f"{said_space.kind}. {nothing}"
        )
    if scored:
        _require_steps(mechanism, said_space, nothing)
        directions = getattr(said_space, "directions", None)
        if directions is not None and n_queries not in (None, len(directions)):
            raise ValueError(
                f"Expected the pool of {len(directions)} queries that the directions belong to, got "
                f"{n_queries} queries. {nothing} Scores are asked for the whole pool at once."
            )
        return
    classes, labels = (getattr(ensemble, about, None) for about in ("n_classes", "n_labels"))
    if not is_multilabel(mechanism):
        if labels is not None and classes is None:
            raise TypeError(
                f"Expected teachers that vote for one class each for {name}, got votes on {labels} labels. "
                f"{nothing} Take a mechanism for labels, such as Binary."
            )
        return
    space = label_space(mechanism)
    wanted = space.n_labels
    if labels is None and classes is not None:
        raise TypeError(
            f"Expected teachers that vote on {wanted} labels for {name}, got votes for one of {classes} "
            f"classes. {nothing} Take a mechanism for classes, such as GNMax."
        )
    if labels not in (None, wanted):
        raise ValueError(
            f"Expected votes on the {wanted} labels of {name}, got teachers that vote on {labels}. {nothing}"
        )
    units, said = space.resolution, getattr(ensemble, "resolution", None)
    if said not in (None, units):
        raise ValueError(
            f"Expected votes in units of 1/{units} for {name}, got teachers that vote in units of 1/{said}. "
            f"{nothing} State the same resolution in both."
        )
    if _needs_ballots(mechanism) and not getattr(ensemble, "has_ballots", True):
        raise ValueError(
            f"Expected votes with ballots for {name}, got sums alone. {nothing} Keep the ballots."
        )


def require_votes(
    votes: Any, mechanism: Mechanism, *, n_queries: int, key: str, n_teachers: int | None = None
) -> None:
    """Refuse what teachers returned if it is not votes on these queries, of the kind that is decided.

    `n_teachers` is how many there are, where that is known: by a plan of groups, or as the teachers say.
    """
    charged = f"No noise was drawn, but the price of {key!r} stays charged."
    try:
        require_kind(mechanism, votes)
        if len(votes) != n_queries:
            raise ValueError(f"Expected votes on {n_queries} queries, got {len(votes)}.")
        if n_teachers not in (None, votes.n_teachers):
            raise ValueError(
                f"Expected the votes of {n_teachers} teachers, which the price goes by, got those of "
                f"{votes.n_teachers}."
            )
        if votes.unit != Unit():
            raise ValueError("Expected votes of which one unit changes one ballot, got another unit.")
        if is_multilabel(mechanism) and _needs_ballots(mechanism) and votes.ballots is None:
            raise ValueError(f"Expected votes with ballots for {type(mechanism).__name__}, got sums alone.")
    except (TypeError, ValueError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{error} {charged}") from None


def require_kind(mechanism: Any, votes: Any) -> None:
    """Refuse votes over another space than a mechanism decides, on other labels or in other units."""
    name, kind = type(mechanism).__name__, answers_of(mechanism)
    require_votes_on(kind, votes, name)
    if kind == Scores.kind:
        _require_steps(mechanism, votes.space, "")
    if kind != "labels":
        return
    wanted = label_space(mechanism)
    if votes.n_labels != wanted.n_labels:
        raise ValueError(
            f"Expected votes on the {wanted.n_labels} labels of {name}, got {votes.n_labels}. "
            f"Declare n_labels={votes.n_labels}."
        )
    if votes.resolution != wanted.resolution:
        parts = "of 0 and 1" if wanted.resolution == 1 else f"in units of 1/{wanted.resolution}"
        raise ValueError(
            f"Expected votes {parts} for {name}, got units of 1/{votes.resolution}. Use "
            "LabelVotes.from_probabilities to turn probabilities into 0 and 1, or state the resolution."
        )


def _require_steps(mechanism: Any, space: Any, more: str) -> None:
    steps = getattr(mechanism, "steps", space.steps)
    if space.steps != steps:
        raise ValueError(
            f"Expected votes of {steps} steps per norm for {type(mechanism).__name__}, got {space.steps}. "
            f"State the same in both. {more}".rstrip()
        )


def require_label_votes(mechanism: Any, votes: Any) -> None:
    """Refuse votes of another kind, on other labels or in other units; nothing is drawn before."""
    require_kind(mechanism, votes)
    if not getattr(mechanism, "lets_abstain", False):
        votes.require_all_labels(type(mechanism).__name__)
    require_one_ballot(votes.unit)


def require_one_ballot(unit: Unit) -> None:
    """Refuse units that move several ballots or heavier ones: label votes have one ballot each."""
    SetOf(1).require_unit(unit)


def _needs_ballots(mechanism: Any) -> bool:
    return bool(getattr(mechanism, "needs_ballots", False))


def fingerprint(X: Any) -> str:
    """Return a fingerprint of public rows: the same numbers give the same one, whatever holds them."""
    digest = hashlib.sha256()
    if hasattr(X, "tocsr"):
        compressed = X.tocsr(copy=True)
        compressed.sum_duplicates()
        parts = [compressed.data, compressed.indices, compressed.indptr]
    else:
        parts = [np.asarray(X)]
    for part in parts:
        digest.update(f"{part.shape};".encode())
        if part.dtype.kind in "biuf":
            # A batch read back from a file may come in another precision or order; the numbers are the same.
            digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        else:
            digest.update(json.dumps(part.tolist(), default=str).encode())
    return digest.hexdigest()
