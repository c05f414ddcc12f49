"""What goes in and out, in strict models: other types, unknown names and infinities are refused."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from .books import Standing
from .teachers import Served

KEY_PATTERN = r"^[!-~]+$"
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Question(BaseModel):
    """A question. Which others of its fields there are depends on what is served.

    >>> Question(idempotency_key="k1").given("pool") is None
    True
    """

    model_config = _STRICT

    idempotency_key: Annotated[
        str,
        Field(
            min_length=1, max_length=200, pattern=KEY_PATTERN,
            description="Names this question. Asked again under the same key it is answered as before and "
            "costs nothing; keys of other students are other keys.",
            examples=["2026-03-01/batch-17"],
        ),
    ]  # fmt: skip

    def given(self, name: str) -> Any:
        """Return a field, or None where it was not given or does not exist here."""
        return getattr(self, name, None)


class _OneOf(Question):
    @model_validator(mode="after")
    def _one_of_both(self) -> "_OneOf":
        if (self.given("rows") is None) == (self.given("pool") is None):
            raise ValueError("Expected either rows or pool.")
        return self


def question_model(served: Served, *, max_batch: int) -> type[Question]:
    """Return the model of questions that can be asked here: its limits are in the API's description.

    >>> from tellers import Budget, GNMax
    >>> served = Served(None, GNMax(sigma=20.0), Budget(epsilon=1.0, delta=1e-5), "", 2, 250, n_pool=3)
    >>> question_model(served, max_batch=10)(idempotency_key="k1", pool=[3])
    Traceback (most recent call last):
        ...
    pydantic_core._pydantic_core.ValidationError: 1 validation error for LabelsRequest
    pool.0
      Input should be less than or equal to 2 ...
    """
    both = bool(served.n_pool and served.n_features)
    fields: dict[str, Any] = {}
    if served.n_features:
        limits = Field(min_length=served.n_features, max_length=served.n_features, fail_fast=True)
        row = Annotated[list[float], limits]
        known = " Rows of the pool only: teachers vote on no others." if served.ids is not None else ""
        fields["rows"] = _many(row, f"Rows of {served.n_features} numbers.{known}", max_batch, optional=both)
    if served.n_pool:
        number = Annotated[int, Field(ge=0, le=served.n_pool - 1)]
        words = f"Ids of rows of the pool, 0 to {served.n_pool - 1}."
        fields["pool"] = _many(number, words, max_batch, optional=both)
    if served.listens:
        chance = Annotated[float, Field(ge=0, le=1)]
        limits = Field(min_length=served.n_classes, max_length=served.n_classes, fail_fast=True)
        words = "What the student thinks: probabilities of the classes, one row per query, that sum to 1."
        fields["student"] = _many(Annotated[list[chance], limits], words, max_batch, optional=False)
    base = _OneOf if both else Question
    made: type[Question] = create_model("LabelsRequest", __base__=base, __doc__="A question.", **fields)
    if both:
        made.model_config["json_schema_extra"] = {"oneOf": [{"required": ["rows"]}, {"required": ["pool"]}]}
        made.model_rebuild(force=True)
    return made


def _many(kind: Any, words: str, most: int, *, optional: bool) -> Any:
    # A default that is no list of these: null itself is refused.
    hidden = {"json_schema_extra": lambda schema: schema.pop("default", None)} if optional else {}
    # The first mistake is enough: a million of them would take seconds, and a gigabyte, to be told.
    limits = Field(  # type: ignore[call-overload]
        min_length=1, max_length=most, fail_fast=True, description=words, **hidden
    )
    return (Annotated[list[kind], limits], None if optional else ...)


class AccountAnswer(BaseModel):
    """How an account stands. Everything in it is public: prices hold whatever the votes were.

    >>> AccountAnswer.of(Standing(1.0, 1e-5, 0.25, 0.75, 30)).queries_left
    30
    """

    epsilon: float = Field(description="The budget.", examples=[2.0])
    delta: float = Field(description="The failure probability that epsilon is stated at.", examples=[1e-5])
    epsilon_spent: float = Field(description="What has been spent, reservations included.", examples=[0.5])
    epsilon_left: float = Field(description="What is left of epsilon.", examples=[1.5])
    queries_left: int = Field(
        description="How many more queries are certainly paid for at the present setting.", examples=[420]
    )

    @classmethod
    def of(cls, standing: Standing) -> "AccountAnswer":
        """Return what is said of a standing."""
        return cls.model_validate(standing, from_attributes=True)


class ChargeAnswer(BaseModel):
    """What a question cost, by itself, at the data's delta.

    >>> ChargeAnswer(epsilon=0.1, delta=1e-5, n_queries=3).n_queries
    3
    """

    epsilon: float = Field(description="Of the price that was charged; it holds whatever the votes were.")
    delta: float
    n_queries: int


class LabelsAnswer(BaseModel):
    """Labels, and what they cost.

    >>> charge = ChargeAnswer(epsilon=0.1, delta=1e-5, n_queries=1)
    >>> account = AccountAnswer.of(Standing(1, 1e-5, 0, 1, 9))
    >>> LabelsAnswer(
    ...     idempotency_key="k1", labels=[-1], silent=[True], by_teachers=[False], replayed=False,
    ...     charge=charge, left=account,
    ... ).n_silent
    1
    """

    idempotency_key: str
    labels: list[int] = Field(
        description="A class for each query, -1 where it was not answered.", examples=[[3, -1]]
    )
    silent: list[bool] = Field(description="Which queries were not answered. Silence is charged too.")
    by_teachers: list[bool] = Field(description="Which labels the teachers gave, and not the student.")
    values: list[list[int]] | None = Field(
        default=None, description="Noisy counts, where those are released."
    )
    replayed: bool = Field(description="Whether this was on record, and cost nothing this time.")
    charge: ChargeAnswer
    left: AccountAnswer = Field(description="What is left of the data's budget.")
    own: AccountAnswer | None = Field(
        default=None, description="What is left of your own budget, where you have one."
    )

    @property
    def n_silent(self) -> int:
        """Return how many queries were not answered."""
        return sum(self.silent)


class GroupAnswer(AccountAnswer):
    """How the account of a group of people stands; budgets and numbers of people are public by design.

    >>> GroupAnswer(
    ...     epsilon=1.0, delta=1e-5, epsilon_spent=0.2, epsilon_left=0.8, queries_left=9, n_persons=120
    ... ).n_persons
    120
    """

    n_persons: int = Field(description="How many people agreed to this budget.", examples=[120])


class BudgetAnswer(BaseModel):
    """How the budgets stand.

    >>> BudgetAnswer(data=AccountAnswer.of(Standing(1, 1e-5, 0, 1, 9)), mechanism={}).own is None
    True
    """

    data: AccountAnswer = Field(description="The budget of the data: all that may ever be learned from it.")
    own: AccountAnswer | None = Field(default=None, description="Your own budget, where you have one.")
    accounts: dict[str, AccountAnswer] | None = Field(
        default=None, description="All named accounts, for operators."
    )
    groups: dict[str, GroupAnswer] | None = Field(
        default=None,
        description="Groups of people with budgets of their own, by name, for operators and auditors.",
    )
    mechanism: dict[str, Any] = Field(
        description="The present setting.", examples=[{"name": "GNMax", "sigma": 40.0}]
    )
    price: float = Field(default=0.0, description="The epsilon of one query by itself, at the data's delta.")
    relation: dict[str, Any] | None = Field(
        default=None,
        description="Whom the budget protects: what one unit is, how it may change, what is public too. "
        "Null where votes or teachers are served without the run they come from: then it is one ballot.",
        examples=[{"unit": "person", "change": "add or remove"}],
    )


class ReleaseRecord(BaseModel):
    """One question on the books.

    >>> record = ReleaseRecord(
    ...     number=0, idempotency_key="k1", n_queries=2, n_answered=1, n_silent=1, settled=True, epsilon=0.1,
    ...     mechanism={},
    ... )
    >>> record.student is None
    True
    """

    number: int = Field(description="Its place among those this key may see, from 0.")
    student: str | None = Field(
        default=None, description="Who asked; none for what a run of the operator's asked."
    )
    idempotency_key: str
    n_queries: int
    n_answered: int
    n_silent: int
    settled: bool = Field(description="False: charged without an answer, in progress or interrupted.")
    epsilon: float = Field(description="What it is charged by itself, at the data's delta.")
    mechanism: dict[str, Any]
    labels: list[int] | None = Field(default=None, description="Your own labels.")


class ReleasesAnswer(BaseModel):
    """Some of the questions on the books, oldest first.

    >>> ReleasesAnswer(releases=[], total=0, next=None).total
    0
    """

    releases: list[ReleaseRecord]
    total: int = Field(description="How many there are, of those this key may see.")
    next: int | None = Field(description="What to send as `after` for those that follow; null at the end.")


class VerifyAnswer(BaseModel):
    """Whether the chain of hashes of the ledger holds together.

    >>> VerifyAnswer(intact=True, head="3f2a", n_entries=7).intact
    True
    """

    intact: bool
    head: str | None = Field(description="The last hash: note it elsewhere, and compare.")
    n_entries: int
    detail: str | None = Field(default=None, description="What is wrong, where something is.")


class HealthAnswer(BaseModel):
    """That the service is there.

    >>> HealthAnswer(status="ok").status
    'ok'
    """

    status: str = Field(examples=["ok"])


class ProblemAnswer(BaseModel):
    """What is wrong and what to do (RFC 9457).

    >>> ProblemAnswer(type="urn:tellers:problem:no-key", title="", status=401, detail="", advice="").status
    401
    """

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:tellers:problem:budget-exhausted"])
    title: str
    status: int
    detail: str
    advice: str = Field(description="What to do.")
    request_id: str | None = None
