"""The collaborations that are measured: one class per row, many labels, and different labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression

from tellers import noise
from tellers.data.label_models import label_probabilities
from tellers.data.metrics import balanced_accuracy, mean_over_labels
from tellers.mechanisms import Binary
from tellers.parties import PoolSum, Terms, collaborate, deal_members, read_material
from tellers.parties.collaboration.learning import Collaboration, Counting
from tellers.parties.collaboration.members import Material, Member, choose_askers, fit_member, score
from tellers.parties.collaboration.sums import held_out_odds, log_odds, read_odds
from tellers.privacy.release import SILENT

EPSILONS = (10.0, 20.0)
COUNTINGS: Final[tuple[Counting, ...]] = ("sound", "published")


def model_for(material: Material) -> Any:
    """Return what every party fits: logistic regression, balanced for labels that most rows do not have."""
    return LogisticRegression(max_iter=500, class_weight="balanced" if material.is_multilabel else None)


@lru_cache(maxsize=2)
def dealt(
    name: str, n_parties: int, rows_each: int | None, n_pool: int, seed: int, data_dir: Path | None
) -> tuple[Material, tuple[Member, ...]]:
    """Return a data set and its members, trained once for all that is asked of them."""
    n_private = None if rows_each is None else n_parties * rows_each
    material = read_material(name, seed=seed, data_dir=data_dir, n_private=n_private, n_pool=n_pool)
    members = deal_members(material.X, material.y, n_parties, estimator=model_for(material), seed=seed)
    return material, members


def hold(material: Material, members: Sequence[Member], terms: Terms, *, seed: int) -> Collaboration:
    """Return one collaboration, with seeded noise."""
    return collaborate(
        material, members, terms, estimator=model_for(material), noise=noise.seeded(1000 + seed), seed=seed
    )


def crossing(
    name: str, *, n_weak: int, n_strong: int, shared: Sequence[int], sigma: float, seed: int,
    data_dir: Path | None, n_pool: int, weak_rows: int, strong_rows: int,
) -> dict[str, Collaboration]:  # fmt: skip
    """Return what weak parties learn from each other, from a strong group, and from both.

    The weak know all labels and have few rows each; the strong know the shared labels alone, and have many.
    """
    n_private = n_weak * weak_rows + n_strong * strong_rows
    material = read_material(name, seed=seed, data_dir=data_dir, n_private=n_private, n_pool=n_pool)
    model, cut = model_for(material), n_weak * weak_rows
    weak = deal_members(material.X[:cut], material.y[:cut], n_weak, estimator=model, seed=seed, prefix="weak")
    strong = deal_members(
        material.X[cut:], material.y[cut:], n_strong, estimator=model, seed=seed, prefix="strong",
        label_sets=[tuple(shared)] * n_strong,
    )  # fmt: skip
    where = {"X": material.X_choice, "y": material.y_choice}
    askers = choose_askers(weak, 3, which="random", seed=seed, **where)  # type: ignore[arg-type]
    own = [label for label in range(material.n_outputs) if label not in shared]

    def judge(one: Any) -> dict[str, float]:
        each = balanced_accuracy(
            material.y_test, (label_probabilities(one, material.X_test) > 0.5).astype(np.int64)
        )
        found = score(one, material.X_test, material.y_test)
        return {
            "bac": found["bac"],
            "BAC, shared labels": mean_over_labels(each[list(shared)]),
            "BAC, other labels": mean_over_labels(each[own]),
        }

    terms = Terms(
        mechanism=Binary(sigma, material.n_outputs), epsilons=(20.0,), n_askers=3, countings=COUNTINGS
    )
    held = {}
    for words, members in (("weak", weak), ("strong", strong), ("both", (*weak, *strong))):
        held[words] = collaborate(
            material, members, terms, estimator=model, noise=noise.seeded(1000 + seed), seed=seed,
            askers=askers, judge=judge,
        )  # fmt: skip
    return held


Scores = dict[str, float]
SURE = 0.8
"""How likely an asker alone must find an answer to teach it to itself."""


@dataclass(frozen=True)
class Reread:
    """A model whose odds are read again by rows that it has not seen: other cuts, the same ranks."""

    model: Any
    slopes: Any
    offsets: Any

    def predict_proba(self, X: Any) -> Any:
        odds = self.slopes * log_odds(label_probabilities(self.model, X)) + self.offsets
        return 1 / (1 + np.exp(-odds))


def alone_with_pool(material: Material, asker: Member) -> dict[str, Scores]:
    """Return how good an asker is that asks nobody, but learns again from what it is sure of in the pool.

    A sum is read by the asker's own rows, which moves the cuts of labels; so this is done here too, by rows
    held out: what is left is what the others bring.
    """
    model = model_for(material)

    def learn(X: Any, y: Any, own: Any = None) -> Any:
        own = fit_member(model, X, y, seed=0) if own is None else own
        chances = label_probabilities(own, material.X_pool)
        sure = np.where(chances > SURE, 1, np.where(chances < 1 - SURE, 0, SILENT))
        return fit_member(model, np.concatenate([X, material.X_pool]), np.concatenate([y, sure]), seed=0)

    learned = learn(asker.X, asker.y, asker.model)
    read = read_odds(held_out_odds(asker.X, asker.y, learn), asker.y, model)
    made = {"alone, with the pool": learned, "alone, with the pool, read again": Reread(learned, *read)}
    return {words: score(one, material.X_test, material.y_test) for words, one in made.items()}


def against_alone(
    material: Material, members: Sequence[Member], *, which: str, seed: int
) -> dict[str, tuple[list[Scores], float, float]]:
    """Return the scores of every asker, how many questions each had, and what a party paid, way by way.

    The same three askers and the same noise seed in all: alone, alone with the pool, label by label, and by
    one Gaussian sum.
    """
    where = {"X": material.X_choice, "y": material.y_choice}
    askers = choose_askers(members, 3, which=which, seed=seed, **where)  # type: ignore[arg-type]
    held = {}
    for words, mechanism in (("label by label", Binary(9.0, material.n_outputs)), ("one sum", PoolSum())):
        terms = Terms(mechanism=mechanism, epsilons=EPSILONS, which=which)
        held[words] = hold(material, members, terms, seed=seed)
    before = held["one sum"].before
    assert list(before) == [asker.name for asker in askers]
    pooled = [alone_with_pool(material, asker) for asker in askers]
    found = {"alone": (list(before.values()), 0.0, 0.0)}
    found |= {words: ([one[words] for one in pooled], 0.0, 0.0) for words in pooled[0]}
    for words, one in held.items():
        for epsilon in EPSILONS:
            turns = one.turns_of("sound", epsilon)
            party = max(turn.party for turn in turns)
            found[f"{words}, epsilon {epsilon:g}"] = (
                [turn.after for turn in turns], float(turns[0].n_queries), party
            )  # fmt: skip
    return found
