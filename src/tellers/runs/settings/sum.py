"""One Gaussian sum in a settings file: its noise, its prior and its directions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ...accounting.sum_plan import SumPlan, given_sum, plan_sum, with_prior
from ...privacy.budget import Accountant
from .._catalogue import uses_torch
from .schema import ONE_OR_MORE, Options, Problem, only, option, wrong

if TYPE_CHECKING:
    from ..sums import Sums

AUTO = "auto"
"""The model that suits a Gaussian sum, in place of a name."""

_CHOSEN = "mechanism.name"
# Options of other sections that say nothing of one sum for the whole pool.
_USUAL: dict[str, Any] = {
    "queries.order": "shuffled", "queries.n_queries": 0, "queries.n_labels": 0, "personal.variant": "",
    "labels.thresholds": (0.5,), "labels.resolution": 1, "labels.implies": {}, "labels.implies_not": {},
    "cluster.address": "", "student.kind": "supervised", "report.private": False,
}  # fmt: skip
_Share = Annotated[float, Field(gt=0, lt=1)]


class SumConfig(Options, title="sum"):
    """How one Gaussian sum is asked for, with mechanism "gaussian-sum".

    >>> SumConfig(prior_share=0.1).asked()
    Sums(mechanism=None, prior=None, prior_share=0.1, n_directions=50, balance=0.25)
    """

    sigma: float = option(
        0.0,
        "Standard deviation of the noise on every entry of the sum, in norms of one ballot; 0 = the least "
        "that the budget affords.",
        ge=0,
    )
    prior: Annotated[tuple[_Share, ...], ONE_OR_MORE] = option(
        (),
        "How often each class or label is true, from public knowledge, one share each; [] = noisy shares are "
        "bought.",
    )
    prior_share: float = option(0.05, "The part of the price that a bought prior takes.", gt=0, lt=1)
    n_directions: int = option(
        50, "Scores are brought onto so many directions in which the pool differs most.", ge=1
    )
    balance: float = option(
        0.25, "A column of frequency p has the weight (p (1 - p)) ** -balance.", ge=0, le=1
    )

    def asked(self) -> "Sums":
        """Return how the sum is asked for, as `ask_sum` takes it."""
        from ..sums import Sums

        return Sums(
            mechanism=given_sum(self.sigma) if self.sigma else None, prior=self.prior or None,
            prior_share=self.prior_share, n_directions=self.n_directions, balance=self.balance,
        )  # fmt: skip

    def plan(self, accountant: Accountant) -> SumPlan:
        """Return the sum and its prior as a budget of which nothing is spent has them."""
        share = 0.0 if self.prior else self.prior_share
        given = with_prior(given_sum(self.sigma), prior_share=share) if self.sigma else None
        return given or plan_sum(accountant, prior_share=share)

    def _rules(self, whole: Any) -> Iterator[Problem]:
        if not whole.mechanism.is_sum:
            for name in self.changed():
                yield only(f"sum.{name}", 'mechanism "gaussian-sum"', _CHOSEN)
            for section in ("teachers", "student"):
                if getattr(whole, section).model == AUTO:
                    yield only(f"{section}.model", 'mechanism "gaussian-sum"', _CHOSEN)
            return
        n_columns = len(whole.labels.names or whole.data.classes)
        if self.prior and n_columns and len(self.prior) != n_columns:
            words = f"Expected one share for each of {n_columns} classes or labels, got {len(self.prior)}."
            yield wrong("sum.prior", words, "labels.names", "data.classes")
        if self.prior and "prior_share" in self.changed():
            yield only("sum.prior_share", "a prior that is bought, prior = []", "sum.prior")
        when = 'with mechanism "gaussian-sum", which asks teachers for their scores of the whole pool at once'
        for key, value in _USUAL.items():
            section, name = key.split(".")
            if getattr(getattr(whole, section), name) != value:
                yield from whole.expect(key, (value,), when, _CHOSEN)
        yield from self._model_rules(whole)

    def _model_rules(self, whole: Any) -> Iterator[Problem]:
        student, teachers = whole.student, whole.teachers
        if student.model != AUTO and ":" not in student.model:
            yield wrong(
                "student.model",
                'Expected "auto", or a regressor as package.module:Name, with mechanism "gaussian-sum", of '
                f'which noisy scores come out, got "{student.model}".',
                _CHOSEN,
            )
        if uses_torch(teachers.model):
            yield wrong(
                "teachers.model",
                'Expected "auto" or a model of scikit-learn with mechanism "gaussian-sum", got '
                f'"{teachers.model}". Networks answer by the query.',
                _CHOSEN,
            )
        for section, chosen in (("teachers", teachers), ("student", student)):
            if chosen.model == AUTO and chosen.parameters:
                words = 'Expected none with model = "auto", got some. Leave them out, or name a model.'
                yield wrong(f"{section}.parameters", words, f"{section}.model")
