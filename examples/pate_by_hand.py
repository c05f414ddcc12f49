"""From private digits to a public student, step by step: teachers, a room with a ledger, labels, a student.

    python examples/pate_by_hand.py [FOLDER]

Takes about ten seconds. FOLDER keeps the teachers and the ledger; without it a temporary one is used. Run it
again with the same FOLDER and nothing is trained, charged or drawn a second time.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from tellers import Accountant, Budget, GNMax, Room, SqliteLedger, noise
from tellers.data import digits
from tellers.errors import BudgetExhausted
from tellers.students import fit_supervised
from tellers.teachers import partition, train_ensemble

N_TEACHERS, SEED = 60, 7


def ask(room: Room, images: np.ndarray) -> Iterator[np.ndarray]:
    """Ask ten at a time until the next ten would pass the budget: they are refused, not answered."""
    for start in range(0, len(images), 10):
        try:
            yield room.ask(images[start : start + 10], key=f"digits {start} on").labels
        except BudgetExhausted:
            return


def main(folder: Path) -> None:
    """Train, ask, learn, and say what it cost."""
    data = digits()
    private, public, test = slice(0, 1200), slice(1200, 1500), slice(1500, None)

    model = LogisticRegression(max_iter=500)
    parts = partition(1200, N_TEACHERS, seed=SEED)
    teachers = train_ensemble(
        model, data.X[private], data.y[private], parts, n_classes=10, seed=SEED, folder=folder / "teachers"
    )
    print(f"{len(teachers)} teachers; the unit that is protected is {parts.unit}.")

    mechanism = GNMax(sigma=9.0)
    accountant = Accountant(Budget(epsilon=8.0, delta=1e-4))
    with SqliteLedger(folder / "spend.db", accountant) as ledger:
        room = Room(teachers, mechanism, ledger, noise.secure())
        labels = np.concatenate(list(ask(room, data.X[public])))
        spent = accountant.epsilon(ledger.spent)
    right = (labels == data.y[public][: len(labels)]).mean()
    print(f"{len(labels)} labels, {right:.1%} right, epsilon {spent:.2f} at delta 1e-4.")

    student = fit_supervised(model, data.X[public][: len(labels)], labels, seed=SEED)
    open_model = LogisticRegression(max_iter=500).fit(data.X[private], data.y[private])
    print(f"Student {student.score(data.X[test], data.y[test]):.1%} right on digits nobody has seen;")
    best = open_model.score(data.X[test], data.y[test])
    print(f"a model trained on the private digits themselves: {best:.1%}.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
