"""Parameters that several mechanisms have: the same words, bounds and units wherever they stand."""

from typing import Any

from .registry import parameter


def noise_sigma(example: float) -> Any:
    """Return the noise of a mechanism with Gaussian noise."""
    words = "standard deviation of the noise on every count, in votes"
    return parameter(words, above=0, example=example, in_votes=1)


def check_threshold(example: float, words: str = "votes the noisy top count must reach") -> Any:
    """Return what a check compares with."""
    return parameter(words, example=example, in_votes=1)


def side_threshold() -> Any:
    """Return what the check of a single label compares with."""
    return check_threshold(40.0, "votes the noisy count of a label's larger side must reach")


def check_sigma(example: float) -> Any:
    """Return the noise of a check."""
    return parameter("standard deviation of the noise of that check", above=0, example=example, in_votes=1)


def label_count() -> Any:
    """Return how many labels there are."""
    return parameter("how many labels there are", of_votes=True)


def vote_parts(default: int = 1) -> Any:
    """Return how fine votes are counted."""
    return parameter("parts of a vote that are counted", default=default, of_votes=True)


def label_cap() -> Any:
    """Return the cap on the labels of a ballot."""
    return parameter("at most so many labels of a ballot count; 0: all", default=0, least=0, example=3)


def label_share() -> Any:
    """Return the share that a label's sum must exceed."""
    words = (
        "the share of the teachers that a sum must exceed, one for all labels or one each; 0.5 where it is "
        "left out"
    )
    return parameter(words, default=0.5, form="numbers", above=0, below=1, example=0.5)


def ballot_norm() -> Any:
    """Return which norm ballots are clipped to."""
    return parameter("which norm; l2 where it is left out", default="l2", choices=("l2", "l1"), example="l2")
