"""A private classifier in scikit-learn's manner: fit, score, and the student with its model card.

    python examples/scikit_learn.py [FOLDER]

Takes about ten seconds. FOLDER keeps teachers, ledger and student; without it a temporary one is used. Run it
again with the same FOLDER and nothing is trained, charged or drawn a second time.
"""

import sys
import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from tellers import Budget, ConfidentGNMax, PateClassifier
from tellers.runs import Training


def main(folder: Path) -> None:
    """Teach a student what fifty teachers may say of private digits."""
    X, y = load_digits(return_X_y=True)
    private, public, test = slice(0, 1200), slice(1200, 1500), slice(1500, None)

    pate = PateClassifier(
        teacher=LogisticRegression(max_iter=500),
        student=LogisticRegression(max_iter=500),
        mechanism=ConfidentGNMax(sigma=10, threshold=30, sigma_threshold=12),
        budget=Budget(epsilon=8.0, delta=1e-4),
        n_teachers=50,
        n_classes=10,  # declared, never read off private labels
        ledger=folder / "spend.db",  # one budget, however often this is fitted
        training=Training(folder=folder / "private"),  # teachers; as private as the rows themselves
    )
    pate.fit(X[private], y[private], public=X[public])

    accuracy = pate.score(X[test], y[test])
    print(f"{pate.n_teachers_} teachers; the unit that is protected is {pate.unit_}.")
    print(f"{pate.n_queries_} questions, {pate.answered_share_:.0%} answered; then {pate.stopped_by_} ended.")
    print(
        f"Student {accuracy:.1%} right on other digits, epsilon {pate.epsilon_:.2f} at delta {pate.delta_}."
    )

    student = pate.export(folder / "student", name="digits", accuracy=accuracy, overwrite=True)
    print((student / "card.md").read_text())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
