"""Budgets per group of people in a settings file: the section, and what goes with what."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .fields import Section, option, options_of
from .lines import Key
from .partition import protects
from .problems import Problem
from .values import toml_value

_VARIANTS = ("", "weighting", "vanishing", "upsampling")
_SOURCES = ("column", "file", "shares")
# Which variants an option is for; those not named here are for all of them.
_FOR = {
    "power": ("vanishing",),
    "precision": ("weighting", "upsampling"),
    "grow": ("upsampling",),
    "most": ("upsampling",),
    "weights": ("weighting",),
    "min_persons": ("weighting", "vanishing"),
}
_MECHANISMS = ("gnmax", "confident", "interactive")


@dataclass(frozen=True, kw_only=True)
class PersonalConfig(Section):
    """Budgets per group of people, each as private as they asked to be; [budget] epsilon is then the ceiling.

    >>> PersonalConfig(variant="weighting", levels={"low": 0.7, "high": 1.4}, column="consent").leave
    False
    """

    variant: Literal["", "weighting", "vanishing", "upsampling"] = option(
        "",
        "weighting: the more generous count for more. vanishing: the stricter sit out most queries. "
        'upsampling: the more generous are learned from by several teachers. "" = one budget for all.',
        choices=_VARIANTS,
    )
    column: str = option(
        "", "files: the column of the private table with budgets, or names of levels; it is never a feature."
    )
    levels: Mapping[str, Any] = option(
        dict, "What each level means, e.g. {low = 0.7, high = 1.4}; without it budgets are numbers."
    )
    file: str = option(
        "", "A CSV file with a line per person: person,level or, without levels, person,epsilon."
    )
    shares: Mapping[str, Any] = option(
        dict,
        "Levels dealt at random by the seed, in these shares, e.g. {low = 0.5, high = 0.5}: for experiments.",
    )
    max_groups: int = option(
        20, "The most groups; more different numbers are binned, and in a bin the strictest rules.", least=1
    )
    leave: bool = option(
        False,
        "Go on without a group whose budget is used, until all are; by upsampling with teachers trained anew "
        "from the data of the others.",
    )
    weights: Literal["epsilon", "price"] = option(
        "epsilon",
        "weighting: weights in proportion to budgets, or such that public prices use up all budgets at once.",
        choices=("epsilon", "price"),
    )
    power: float = option(
        2.0, "vanishing: a group votes in (epsilon / largest)^power of all queries.", above=0
    )
    precision: float = option(
        0.0,
        "weighting, upsampling: how far whole weights or copies may be off; 0 = 0.02 and 0.1.",
        least=0,
        below=1,
    )
    grow: Literal["teachers", "shares"] = option(
        "teachers",
        "upsampling: what copies are for, more teachers, or more rows for each.",
        choices=("teachers", "shares"),
    )
    most: int = option(20, "upsampling: the most teachers that learn from one person.", least=1)
    min_persons: int = option(
        0, "weighting, vanishing: persons that one teacher needs; 0 = half an even share.", least=0
    )

    @property
    def is_on(self) -> bool:
        """Return whether budgets are per group at all."""
        return bool(self.variant)

    @property
    def source(self) -> str:
        """Return the option that says who agreed to what: column, file or shares; "" for none."""
        return next((name for name in _SOURCES if getattr(self, name)), "")


def personal_rules(run: Any) -> Iterator[Problem]:
    """Return what does not go together in settings with budgets per group.

    >>> from tellers.config import RunConfig
    >>> list(personal_rules(RunConfig()))
    []
    """
    personal, variant = run.personal, ("personal", "variant")
    usual = PersonalConfig()
    for option_ in options_of(PersonalConfig):
        name = option_.name
        if name == "variant" or getattr(personal, name) == getattr(usual, name):
            continue
        if not personal.variant:
            yield Problem(
                ("personal", name), "Expected it only with a variant, got it without. Drop it.", (variant,)
            )
        elif personal.variant not in _FOR.get(name, _VARIANTS):
            those = " or ".join(map(toml_value, _FOR[name]))
            yield Problem(
                ("personal", name),
                f'Expected it only with variant = {those}, got "{personal.variant}". Drop it.',
                (variant,),
            )
    if not personal.variant:
        return
    if run.data.name == "clips":
        yield Problem(
            variant, 'Expected it only with tables, got it with "clips", whose lines are dealt, not persons. '
            "Drop it.", (("data", "name"),),
        )  # fmt: skip
    yield from _source_rules(run)
    yield from _level_rules(personal)
    for key, value, wanted, why in (
        (("mechanism", "name"), run.mechanism.name, _MECHANISMS, "whose price per group is known"),
        (("partition", "by"), protects(run), ("record", "person"), "which have budgets of their own"),
        (("partition", "stratified"), run.partition.stratified, (False,), "as teachers are dealt by group"),
        (("data", "id"), run.data.id, ("",), "as records without persons keep their place"),
        (("budget", "stop"), run.budget.stop, ("public",), "as groups are held to public prices"),
    ):
        if value not in wanted:
            listed = " or ".join(map(toml_value, wanted))
            yield Problem(
                key, f"Expected {listed} with budgets per group, {why}, got {toml_value(value)}.", (variant,)
            )


def _source_rules(run: Any) -> Iterator[Problem]:
    personal, data, variant = run.personal, run.data, ("personal", "variant")
    named = [name for name in _SOURCES if getattr(personal, name)]
    if len(named) != 1:
        got = " and ".join(named) or "none"
        yield Problem(
            ("personal", named[-1] if named else "variant"),
            f"Expected one of column, file or shares, to say who agreed to what, got {got}.",
            (variant,),
        )
    if personal.column:
        key = ("personal", "column")
        if data.name != "files":
            yield Problem(
                key,
                f'Expected it only with name = "files" in [data], got "{data.name}". Take file or shares.',
                (("data", "name"),),
            )
        taken = [
            role for role in ("target", "person", "id", "site") if getattr(data, role) == personal.column
        ]
        if taken or "budget" in data.options:
            role = taken[0] if taken else "options.budget"
            yield Problem(
                key, f"Expected a column of its own, [data] {role} names one too.", (("data", role),)
            )
    if personal.file and protects(run) != "person":
        yield Problem(
            ("personal", "file"),
            f'Expected by = "person" in [partition] where persons consent, got "{protects(run)}".',
            (("partition", "by"),),
        )


def _level_rules(personal: Any) -> Iterator[Problem]:
    for name, epsilon in personal.levels.items():
        if not _is_number(epsilon) or not 0 < epsilon < math.inf:
            yield Problem(
                ("personal", "levels", name),
                f"Expected a budget above 0 and finite, got {toml_value(epsilon)}.",
            )
        if not name.strip():
            yield Problem(("personal", "levels"), f"Expected a name, got {toml_value(name)}.")
    shares: Key = ("personal", "shares")
    for name, share in personal.shares.items():
        if name not in personal.levels:
            known = ", ".join(personal.levels) or "none"
            yield Problem(
                (*shares, name), f"Expected one of the levels ({known}). Say in levels what it means."
            )
        if not _is_number(share) or not 0 < share <= 1:
            yield Problem(
                (*shares, name), f"Expected a share above 0 and at most 1, got {toml_value(share)}."
            )
            return
    total = math.fsum(personal.shares.values())
    if personal.shares and abs(total - 1) > 1e-6:
        yield Problem(shares, f"Expected shares that sum to 1, got {total:g}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
