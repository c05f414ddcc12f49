"""One way to aggregate stored votes, and grids of such ways: what a sweep goes over."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from ..errors import require_count, require_positive
from ..label_bounds import LabelMechanism
from ..mechanisms import ConfidentGNMax, GNMax
from ..mechanisms.labels import (
    AdaptiveGNThreshold,
    Binary,
    ConfidentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNThreshold,
    Powerset,
    Tau,
)

Kind = Literal["adaptive", "adaptive-as-published", "binary", "gnmax", "gnthreshold", "powerset", "tau"]
KINDS: tuple[Kind, ...] = ("adaptive", "adaptive-as-published", "binary", "gnthreshold", "powerset", "tau")
"""Of votes on many labels."""
CLASS_KINDS: tuple[Kind, ...] = ("gnmax",)
"""Of votes on one class each."""


@dataclass(frozen=True, kw_only=True)
class SweepSetting:
    """One way to aggregate: shares and noises are parts of the ensemble, as the thesis has them.

    `share` (its th_e) is what a label needs; `confident_share` (th_c) what the `n_top` largest sums need for
    a query to be answered, or a label or set in Binary, tau and Powerset voting, None for no check. `sigma`
    and `sigma_gate` are the noises of the labels and of the check. `noise` says how these are read for n
    teachers: as a "deviation" of sigma n votes, or as a "variance" of sigma n, as the thesis's table 5.4 adds
    up. `max_labels` caps ballots (0: not), `max_norm` clips those of tau voting. "adaptive" chooses its share
    with noise of the scale of sigma. "gnmax" is for votes on one class each: a class needs no share, and with
    a check it is the confident one.

    >>> setting = SweepSetting(kind="gnthreshold", share=0.2, sigma=0.3, noise="variance")
    >>> round(setting.votes(setting.sigma, 50) ** 2, 9), setting.mechanism(n_teachers=50, n_labels=4).share
    (15.0, 0.2)
    >>> SweepSetting(kind="gnmax", sigma=0.2, confident_share=0.6, sigma_gate=0.3).class_mechanism(50)
    ConfidentGNMax(sigma=10.0, threshold=30.0, sigma_threshold=15.0)
    """

    kind: Kind = "gnthreshold"
    share: float = 0.5
    sigma: float
    confident_share: float | None = None
    sigma_gate: float | None = None
    n_top: int = 1
    n_samples: int | None = None
    noise: Literal["deviation", "variance"] = "deviation"
    max_labels: int = 0
    max_norm: float = 1.5

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, *CLASS_KINDS):
            known = ", ".join((*KINDS, *CLASS_KINDS))
            raise ValueError(f"Expected kind to be one of {known}, got {self.kind!r}.")
        if self.noise not in ("deviation", "variance"):
            raise ValueError(f"Expected noise='deviation' or 'variance', got {self.noise!r}.")
        require_positive(sigma=self.sigma)
        if (self.confident_share is None) != (self.sigma_gate is None):
            raise ValueError(
                "Expected confident_share and sigma_gate together, or neither, got one of them. A check "
                "needs a share and noise."
            )
        if self.sigma_gate is not None:
            require_positive(sigma_gate=self.sigma_gate)
            if self.kind == "adaptive":
                raise ValueError(
                    "Expected no check with kind='adaptive', got confident_share: no mechanism has both. "
                    "Take 'gnthreshold', or 'adaptive-as-published' for the thesis's numbers."
                )
        if self.n_samples is not None:
            require_count(n_samples=self.n_samples)

    def votes(self, sigma: float, n_teachers: int) -> float:
        """Return a noise as a standard deviation in votes."""
        return sigma * n_teachers if self.noise == "deviation" else math.sqrt(sigma * n_teachers)

    def mechanism(self, *, n_teachers: int, n_labels: int, resolution: int = 1) -> LabelMechanism:
        """Return the mechanism that this is; of the thesis's adaptive one, which is none, the labels' half.

        `resolution` is that of the votes. Binary, tau and Powerset voting take ballots of 0 and 1.
        """
        if self.kind in CLASS_KINDS:
            raise ValueError(
                f"Expected a kind for many labels, got {self.kind!r}, which is for one class each."
            )
        sigma, k = self.votes(self.sigma, n_teachers), n_labels
        if self.kind == "adaptive":
            return AdaptiveGNThreshold(
                sigma, k, scale=sigma, max_labels=self.max_labels, resolution=resolution
            )
        gate, height = self.sigma_gate, self.confident_share
        if gate is None or height is None:
            plain: dict[str, Callable[[], LabelMechanism]] = {
                "binary": lambda: Binary(sigma, k),
                "tau": lambda: Tau(sigma, k, self.max_norm),
                "powerset": lambda: Powerset(sigma, k, self.max_labels),
            }
            if self.kind in plain:
                return plain[self.kind]()
            return GNThreshold(sigma, k, self.share, self.max_labels, resolution)
        check, needed = self.votes(gate, n_teachers), height * n_teachers
        checked: dict[str, Callable[[], LabelMechanism]] = {
            "binary": lambda: ConfidentBinary(sigma, k, needed, check),
            "tau": lambda: ConfidentTau(sigma, k, self.max_norm, needed, check),
            "powerset": lambda: ConfidentPowerset(sigma, k, needed, check, self.max_labels),
        }
        if self.kind in checked:
            return checked[self.kind]()
        return ConfidentGNThreshold(
            sigma, k, min(self.n_top, k), height, check, self.share, self.max_labels, resolution
        )

    def class_mechanism(self, n_teachers: int) -> GNMax | ConfidentGNMax:
        """Return the mechanism that this is for votes on one class each."""
        if self.kind not in CLASS_KINDS:
            raise ValueError(
                f"Expected a kind for one class each, got {self.kind!r}, which is for many labels."
            )
        sigma = self.votes(self.sigma, n_teachers)
        if self.sigma_gate is None or self.confident_share is None:
            return GNMax(sigma)
        return ConfidentGNMax(
            sigma, self.confident_share * n_teachers, self.votes(self.sigma_gate, n_teachers)
        )


def sweep_settings(
    *,
    sigmas: Sequence[float],
    shares: Sequence[float] = (0.5,),
    kinds: Sequence[Kind] = ("gnthreshold",),
    checks: Sequence[tuple[float, float] | None] = (None,),
    n_samples: Sequence[int | None] = (None,),
    **fixed: Any,
) -> list[SweepSetting]:
    """Return all combinations: `checks` are None, or (confident_share, sigma_gate).

    Kinds that know no share have one setting for all of them. A check with a sound adaptive threshold is left
    out: no mechanism has both.

    >>> settings = sweep_settings(sigmas=[0.1, 0.3], shares=[0.2, 0.4], kinds=["gnthreshold", "binary"])
    >>> len(settings), settings[0].share
    (6, 0.2)
    """
    found: list[SweepSetting] = []
    for kind, share, check, sigma, n in product(kinds, shares, checks, sigmas, n_samples):
        if (kind == "adaptive" and check is not None) or (kind != "gnthreshold" and share != shares[0]):
            continue
        gate: dict[str, Any] = {}
        if check is not None:
            gate = {"confident_share": check[0], "sigma_gate": check[1]}
        found.append(SweepSetting(kind=kind, share=share, sigma=sigma, n_samples=n, **gate, **fixed))
    return found
