"""Which kind of ballots these are, in words: what the published regimes advise, and what was found."""

from dataclasses import dataclass
from typing import Literal

from ..label_bounds import LabelMechanism
from ..mechanisms.labels.powerset import SetVoting
from .label_profile import BallotTraits

Name = Literal["consensus", "correlated", "sparse", "contested"]

# Above these the words apply; they steer no number.
_AGREE = 0.9
_SHARED_YES = 0.6
_TOP_SET = 0.5
_TOGETHER = 1.15


@dataclass(frozen=True)
class Regime:
    """The kind of ballots: its name, why it is called so, and what follows for the choice of mechanism."""

    name: Name
    why: str
    advice: str


def regime_of(
    traits: BallotTraits, best: LabelMechanism | None = None, best_exact: LabelMechanism | None = None
) -> Regime:
    """Return the regime of these ballots, and what to make of it given the settings that were found best.

    Guarantee: none; words about numbers that are all in the table.
    Assumes:   the traits are those of a public proxy.
    Reference: Dullerud et al. 2022, sections 3.3 and 5.2: Binary voting under consensus, tau voting where
               there is less of it and few labels per ballot, Powerset where labels are strongly correlated.

    >>> from tellers.calibrate import BallotTraits
    >>> traits = BallotTraits(n_teachers=50, n_queries=90, n_labels=22, agreement=0.96, shared_yes=0.8,
    ...     ones=2.1, most_ones=4, top_set=0.45, top_set_if_independent=0.44, correlation=0.1)
    >>> regime_of(traits).name
    'consensus'
    """
    name = _name(traits)
    return Regime(name, _why(traits, name), _advice(name, best, best_exact))


def _name(traits: BallotTraits) -> Name:
    together = traits.top_set >= _TOGETHER * traits.top_set_if_independent
    if together and traits.top_set >= _TOP_SET:
        return "correlated"
    if traits.agreement >= _AGREE and traits.shared_yes >= _SHARED_YES:
        return "consensus"
    return "sparse" if 2 * traits.most_ones <= traits.n_labels else "contested"


def _why(traits: BallotTraits, name: Name) -> str:
    facts = {
        "agreement": f"on a label {traits.agreement:.1%} of the teachers are on the larger side, and a "
        f"majority joins {traits.shared_yes:.0%} of the yes votes",
        "sparse": f"a ballot says yes to {traits.ones:.1f} of {traits.n_labels} labels, nine in ten say it "
        f"to at most {traits.most_ones}",
        "sets": f"{traits.top_set:.0%} cast the same whole set of labels, where labels voted on one by one "
        f"would give {traits.top_set_if_independent:.0%}",
    }
    order = {
        "correlated": ("sets", "agreement", "sparse"),
        "consensus": ("agreement", "sparse", "sets"),
        "sparse": ("sparse", "agreement", "sets"),
        "contested": ("agreement", "sets", "sparse"),
    }[name]
    text = "; ".join(facts[fact] for fact in order)
    return f"{text[0].upper()}{text[1:]}."


_RULES: dict[Name, str] = {
    "correlated": "Labels come in few sets, so voting on whole sets pays for one election instead of one per "
    "label: Powerset is the published choice.",
    "consensus": "Most labels are clear, and a clear label costs next to nothing in the exact books: Binary "
    "voting is the published choice.",
    "sparse": "Teachers disagree on what is true, so the dearest pair of ballots is what is paid for; with "
    "few labels per ballot a clip brings it down: tau voting is the published choice.",
    "contested": "Teachers disagree and ballots are long: neither clear labels nor a clip help much. "
    "The published choice is the cheapest price, one set instead of many labels, if it survives the noise.",
}


def _advice(name: Name, best: LabelMechanism | None, best_exact: LabelMechanism | None) -> str:
    words = [_RULES[name]]
    if best is not None:
        reason = (
            "there consensus does not count, only how far one ballot can move all labels together"
            if not isinstance(best, SetVoting)
            else "there one set costs one election, however many labels it has"
        )
        words.append(f"Under the public price {_called(best)} answers most: {reason}.")
    if best_exact is not None:
        same = best is not None and _called(best) == _called(best_exact)
        also = "also " if same else ""
        words.append(f"In the private books {_called(best_exact)} is {also}forecast to answer most.")
    if best is None:
        words.append("No setting keeps the labels right within this budget: raise it, or get more teachers.")
    return " ".join(words)


def _called(mechanism: LabelMechanism) -> str:
    norm = getattr(mechanism, "norm", "")
    return f"{type(mechanism).__name__}{f' ({norm})' if norm else ''}"
