"""What both classifiers do around a fit: forget the last one, and say why nothing may be guaranteed."""

from typing import Any


class Fitting:
    """Shared by the classifiers of one class and of many labels per row."""

    ledger: Any

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "student_")

    def _forget(self) -> None:
        """Drop what an earlier fit left: its student must not stand beside what this one costs."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _reasons(
        self, *, declared: bool, pooled: bool, seeded: bool, what: str, argument: str, read_off: str
    ) -> list[str]:
        """Return why no epsilon may be stated; refuse where books are kept all the same."""
        if self.ledger is not None and not (declared and pooled):
            missing = "public pool" if declared else argument
            raise ValueError(
                f"Expected {what} and a public pool where a ledger is kept, got no {missing}. Its books "
                "would say a cost that is not the cost of this fit. "
                f"Pass {argument}=... and public=..., or leave out the ledger."
            )
        found = {
            f"The {what} were not declared, so they were read off {read_off}.": not declared,
            "No public pool was given, so half of the rows became the pool.": not pooled,
            "The noise was drawn from random_state, and who knows that can take it off.": seeded,
        }
        return [reason for reason, holds in found.items() if holds]
