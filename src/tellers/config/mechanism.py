"""How votes become labels, in a settings file: a mechanism by its name, and its parameters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .fields import Section, option

if TYPE_CHECKING:
    from ..mechanisms import Mechanism

CLASS_MECHANISMS = ("lnmax", "gnmax", "confident", "interactive", "histogram")
# By name, as the settings are read without loading what they name; a test holds them together.
LABEL_MECHANISMS = (
    "binary", "confident-binary", "tau", "confident-tau", "powerset", "confident-powerset",
    "partial-powerset", "gnthreshold", "confident-gnthreshold", "adaptive-gnthreshold",
)  # fmt: skip
MECHANISM_PARAMETERS = (
    "gamma", "sigma", "threshold", "sigma_threshold", "student_confidence", "max_norm", "norm", "max_labels",
    "share", "n_top", "confident_share", "sigma_gate", "scale", "shares", "groups",
)  # fmt: skip
WHY_NOT_CONFIDENT = (
    "Between parties its silence can be made to tell single votes: an asker that adds 2^63 to its sum of one "
    "class turns that class's comparison round, all classes share the noise of one check, and no price "
    "covers that. Take gnmax, or vote in one room."
)
"""Why confidential rounds refuse the mechanism confident, in words for whoever asked for it."""


@dataclass(frozen=True, kw_only=True)
class MechanismConfig(Section):
    """How votes become outcomes, with the parameters that this mechanism has and no others.

    >>> MechanismConfig(name="gnmax", sigma=9).build()
    GNMax(sigma=9.0)
    """

    name: str = option(
        "confident",
        "lnmax: Laplace noise, the winner. gnmax: Gaussian noise, the winner. confident: gnmax, silent where "
        "the teachers do not agree. interactive: confident, and only where the student is wrong or unsure. "
        "histogram: all noisy counts, for a distilled student. Names for many labels are with [labels].",
        choices=(*CLASS_MECHANISMS, *LABEL_MECHANISMS),
    )
    gamma: float | None = option(
        None, "lnmax: the noise on every count has scale 1 / gamma.", above=0, example=0.05
    )
    sigma: float | None = option(
        None,
        "All but lnmax: standard deviation of the noise on every count, in votes.",
        above=0,
        example=8.0,
    )
    threshold: float | None = option(
        None,
        "confident, interactive: votes the top count must reach (interactive: beyond the student's share).",
        example=25.0,
    )
    sigma_threshold: float | None = option(
        None, "confident, interactive: standard deviation of the noise of that check.", above=0, example=30.0
    )
    student_confidence: float | None = option(
        None, "interactive: a student surer than this keeps its own label.", least=0, most=1, example=0.9
    )

    max_norm: float | None = option(
        None, "tau: clip every ballot to this norm, in votes.", above=0, example=2.0, for_labels=True
    )
    norm: str | None = option(
        None,
        "tau: which norm; l2 where it is left out.",
        choices=("l2", "l1"),
        example='"l2"',
        for_labels=True,
    )
    max_labels: int | None = option(
        None,
        "powerset, gnthreshold: at most so many labels of a ballot count.",
        least=1,
        example=3,
        for_labels=True,
    )
    share: tuple[float, ...] | None = option(
        None,
        "gnthreshold: the share of the teachers that a sum must exceed, one for all labels or one each; 0.5 "
        "where it is left out.",
        form="numbers",
        above=0,
        below=1,
        example=0.5,
        for_labels=True,
    )
    n_top: int | None = option(
        None,
        "confident-gnthreshold: so many of the largest sums must reach confident_share.",
        least=1,
        example=2,
        for_labels=True,
    )
    confident_share: float | None = option(
        None, "confident-gnthreshold: see n_top.", above=0, below=1, example=0.7, for_labels=True
    )
    sigma_gate: float | None = option(
        None, "confident-gnthreshold: the noise of that check.", above=0, example=12.0, for_labels=True
    )
    scale: float | None = option(
        None,
        "adaptive-gnthreshold: the noise of the choice of a share, in votes.",
        above=0,
        example=20.0,
        for_labels=True,
    )
    shares: tuple[float, ...] | None = option(
        None,
        "adaptive-gnthreshold: the shares to choose from; 0.1 to 0.9 where they are left out.",
        form="numbers",
        above=0,
        below=1,
        example="[0.3, 0.5, 0.7]",
        for_labels=True,
    )
    groups: tuple[tuple[str, ...], ...] | None = option(
        None,
        "partial-powerset: labels that are voted on together, by name.",
        form="groups",
        example='[["rain", "wind"], ["snow"]]',
        for_labels=True,
    )

    @property
    def is_for_labels(self) -> bool:
        """Return whether it is a mechanism for many labels per row.

        >>> MechanismConfig(name="binary", sigma=9.0).is_for_labels
        True
        """
        return self.name in LABEL_MECHANISMS

    @property
    def given(self) -> dict[str, Any]:
        """Return the parameters that have a value."""
        values = {name: getattr(self, name) for name in MECHANISM_PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}

    def build(self) -> "Mechanism":
        """Return the mechanism itself, for one class per row; see `RunConfig.build_mechanism` for labels."""
        from .rules import mechanism_class

        mechanism: Mechanism = mechanism_class(self.name)(**self.given)
        return mechanism
