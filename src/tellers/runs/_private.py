"""The private numbers of a run: computed where the settings ask for them, kept in `private/summary.json`."""

from pathlib import Path

from pydantic import Field

from .result import (
    CostPoint,
    Count,
    GroupPoint,
    MaybeCount,
    MaybeNumber,
    MaybeShare,
    Number,
    ResultPart,
    Share,
    Texts,
    how_to_resume,
    read_json,
)


class NoisePoint(ResultPart):
    """The share of right labels, on average over noise of this scale."""

    sigma: Number
    accuracy: Share


class PrivateGroups(ResultPart):
    """The exact cost of each group, or None where it cannot be told."""

    exact_cost: tuple[GroupPoint, ...] | None = None


class PrivateNumbers(ResultPart):
    """What only the operator may see: it looks at votes, teachers or private rows. Every part may be missing.

    `gaps` are how far the winner of each query was ahead; of many labels, the votes between yes and no.
    """

    n_teachers: MaybeCount = None
    delta: MaybeNumber = None
    gaps: tuple[Count, ...] = ()
    exact_cost: tuple[CostPoint, ...] | None = None
    seconds: dict[str, Number] = Field(default_factory=dict)
    notes: Texts = ()
    personal: PrivateGroups | None = None
    accuracy_against_noise: tuple[NoisePoint, ...] = ()
    teacher_accuracies: tuple[Share, ...] = ()
    plurality_accuracy: MaybeShare = None
    open_model_accuracy: MaybeShare = None

    def __repr__(self) -> str:
        return "PrivateNumbers(<private>)"

    __str__ = __repr__


def read_private(folder: Path) -> PrivateNumbers:
    """Return the private numbers of a run, for the operator's eyes."""
    place = folder / "private" / "summary.json"
    if not place.exists():
        raise ValueError(
            f"Expected private numbers in {place}, found none: they are computed where the settings say "
            f"`private = true` under [report]. Write the public report, or set that. {how_to_resume(folder)}"
        )
    table = read_json(place, advice=f"Move it away. {how_to_resume(folder)}")
    try:
        return PrivateNumbers.from_dict(table)
    except ValueError as error:
        raise ValueError(f"{place}: {error} The file was changed or damaged.") from error
