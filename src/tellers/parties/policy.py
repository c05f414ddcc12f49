"""What a guardian and an answering party hold all others to: rosters, quotas, quorums and patience."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..errors import require_count, require_positive
from .label_sets import Labels, count_voters, require_labels
from .messages import Expect, Open, Question

ProgramFor = Callable[[int], str]
"""The hash of the public program for a batch of so many queries."""
Affords = Callable[[int], bool]
"""Whether the books can pay for so many queries more."""


@dataclass(frozen=True)
class GuardianPolicy:
    """The rules of a guardian's session.

    `quotas` holds the askers, each with the number of queries it may have answered, ever. `terms` is the hash
    of the settings that all parties share. `pairwise` says that masks cancel only over the very set that they
    were made for: whoever drops out then ends the query. `labels` holds the label sets of those that do not
    know all.

    >>> GuardianPolicy.example().quorum
    2
    """

    roster: tuple[str, ...]
    quotas: Mapping[str, int]
    quorum: int
    n_outputs: int
    terms: str
    program_for: ProgramFor
    max_queries: int = 100
    max_open: int = 4
    max_changes: int = 8
    max_strikes: int = 3
    patience: float = 30.0
    pairwise: bool = True
    labels: Mapping[str, Labels] = field(default_factory=dict)
    affords: Affords | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count(
            quorum=self.quorum, n_outputs=self.n_outputs, max_queries=self.max_queries, max_open=self.max_open
        )
        require_count(0, max_changes=self.max_changes, max_strikes=self.max_strikes)
        require_positive(patience=self.patience)
        if len(set(self.roster)) != len(self.roster):
            raise ValueError("Expected a roster of different parties, got one twice.")
        least = 2 if self.pairwise else 1
        if not least <= self.quorum <= len(self.roster):
            raise ValueError(
                f"Expected a quorum from {least} to {len(self.roster)}, the number of parties on the roster, "
                f"got {self.quorum}."
            )
        both = set(self.roster) & set(self.quotas)
        if both:
            raise ValueError(
                f"Expected askers that do not answer in the same session, got {sorted(both)[0]!r}."
            )
        for name, quota in self.quotas.items():
            require_count(0, **{f"quota of {name}": quota})
        for known in self.labels.values():
            require_labels(known, self.n_outputs)

    def voters(self, parties: tuple[str, ...]) -> Labels:
        """Return how many of some parties know each label, or nothing where all know all.

        >>> GuardianPolicy.example().voters(("north", "south"))
        ()
        """
        return count_voters(parties, self.labels, self.n_outputs)

    @classmethod
    def example(cls) -> "GuardianPolicy":
        """Return the policy of a small session, for examples.

        >>> GuardianPolicy.example().roster
        ('north', 'south')
        """
        return cls(("north", "south"), {"ann": 100}, 2, 3, terms="0" * 64, program_for=lambda _: "0" * 64)


@dataclass(frozen=True)
class AnswererPolicy:
    """What an answering party lets others ask of it.

    `quotas` holds the askers, each with the number of queries that this party answers for it, ever.
    `least_set` is the smallest answering set that it lends a mask to: alone its vote would have no company.

    >>> AnswererPolicy("north", {"ann": 100}, 3, 4, "0" * 64, lambda _: "0" * 64).least_set
    2
    """

    name: str
    quotas: Mapping[str, int]
    n_outputs: int
    n_features: int
    terms: str
    program_for: ProgramFor
    roster: tuple[str, ...] = ()
    max_queries: int = 100
    max_open: int = 16
    least_set: int = 2
    pair_keys: Mapping[str, bytes] | None = field(default=None, repr=False)
    noise_sigma: float | None = None
    affords: Affords | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count(
            n_outputs=self.n_outputs, n_features=self.n_features, max_queries=self.max_queries,
            max_open=self.max_open, least_set=self.least_set,
        )  # fmt: skip
        for name, quota in self.quotas.items():
            require_count(0, **{f"quota of {name}": quota})
        if self.noise_sigma is not None:
            require_positive(noise_sigma=self.noise_sigma)


def why_not(
    policy: GuardianPolicy | AnswererPolicy, asker: str, asked: Open | Expect | Question, *, host: str
) -> str:
    """Return why a query is not for `host` to take part in, whatever else is on its way; or nothing.

    >>> opening = Open(qid="0" * 32, n_queries=3, program="0" * 64, terms="0" * 64)
    >>> why_not(GuardianPolicy.example(), "ann", opening, host="the guardian")
    ''
    >>> why_not(GuardianPolicy.example(), "eve", opening, host="the guardian")
    'eve is not among the askers that the guardian knows.'
    """
    if asker not in policy.quotas:
        return f"{asker} is not among the askers that {host} knows."
    if asked.terms != policy.terms:
        return f"The asker has other terms than {host}. Compare shared settings and labels on cards."
    if asked.n_queries > policy.max_queries:
        return f"A batch holds at most {policy.max_queries} queries for {host}."
    if asked.program != policy.program_for(asked.n_queries):
        return f"The asker has another program than {host}. Run the same version with the same shapes."
    return ""
