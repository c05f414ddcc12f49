"""The judge: the ledger against everybody's notes, whoever was killed. It uses nothing of what it judges.

`python judging.py` reads requests, lines of JSON with the `folder` of a round, and answers with a verdict.
Labels are priced by `pricing`, and the ledger is read by `reading`; both are the judge's own.
"""

import json
import math
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pricing import NEAR, Floats, Prices, leaks_more
from reading import MAIN, Account, Books, Question, broken_links, query, read_rows

# Whoever would import the package from here is told that there is none.
sys.modules["tellers"] = None  # type: ignore[assignment]

_SLOW = 10.0  # seconds
_MOST = 1.03
"""How much more than we work out may be charged: prices are rounded up, and for noise of whole numbers."""

_SPARE_COUNTS = ("client", "service", "pause", "everything", "disk full", "read-only", "changed line")

Notes = list[dict[str, Any]]


@dataclass
class Verdict:
    """What a look at the ledger found: violations, or none, and what may be counted."""

    violations: list[str] = field(default_factory=list)
    is_dry: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    longest: float = 0.0
    trouble: dict[str, int] = field(default_factory=dict)

    def expect(self, holds: Any, words: str) -> None:
        if not holds and words not in self.violations:
            self.violations.append(words)


@cache
def _prices(orders: tuple[float, ...], sigma: float, sigma_check: float, weight: int) -> Prices:
    return Prices.of(np.array(orders), sigma=sigma, sigma_check=sigma_check, weight=weight)


@cache
def _leak(order: float, silent: float, answered: float, **known: Any) -> float:
    return leaks_more(order, silent, answered, **known)


@dataclass
class Case:
    """One round: what is known of it, and what the looks before have seen."""

    folder: Path
    heads: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.facts = json.loads((self.folder / "facts.json").read_text())
        self._numbers = {str(n) for n in range(self.facts["n_questions"])}

    def look(self) -> Verdict:
        """Compare the ledger with what askers were told and with what teachers were asked.

        Notes are read first: what was noted before must be on the ledger now.
        """
        self.verdict = Verdict()
        self.notes = self._asker_notes()
        self.asked = Counter(self._asked())
        self.faults = _journal(self.folder / "faults.jsonl")
        clerks = self._clerk_notes()
        self.rows = read_rows(self.facts["where"])
        for words in broken_links(self.rows):
            self.verdict.expect(False, words)
        self._check_heads()
        self.books = Books(self.verdict.expect).read(self.rows)
        self._check_terms()
        self._check_items()
        self._check_notes()
        for key, times in self.asked.items():
            known = key in self.books.questions
            self.verdict.expect(known, f"{key}: teachers were asked, and no reservation is on the ledger")
            self.verdict.expect(times == 1, f"{key}: teachers were asked {times} times")
        for key, question in self.books.questions.items():
            self._check_question(key, question)
        self._check_refusals()
        self._check_keys(clerks)
        self._count()
        return self.verdict

    # --- What was noted ---

    def _asker_notes(self) -> dict[int, Notes]:
        found = {}
        for number in range(2 * len(self.facts["spaces"])):
            begins = self.facts["spaces"][number // 2]["key"]
            said = _journal(self.folder / f"asker-{number}.jsonl")
            found[number] = [{**one, "key": f"{begins}{one['n']}"} for one in said]
        return found

    def _clerk_notes(self) -> list[Notes]:
        return [_journal(path) for path in sorted(self.folder.glob("clerk-*.jsonl"))]

    def _asked(self) -> list[str]:
        path = self.folder / "asked.txt"
        keys = []
        for line in path.read_text().splitlines() if path.exists() else ():
            number, n = divmod(int(line) // self.facts["n_rows"], self.facts["n_questions"])
            keys.append(f"{self.facts['spaces'][number]['key']}{n}")
        return keys

    def _check_heads(self) -> None:
        """See that nothing which was seen before is gone."""
        for number, digest in self.heads.items():
            there = number < len(self.rows) and self.rows[number].hash == digest
            self.verdict.expect(there, f"line {number} was seen before, and is gone or another now")
        if self.rows:
            self.heads[self.rows[-1].number] = self.rows[-1].hash

    def _check_notes(self) -> None:
        told: dict[str, list[int]] = {}
        for said in (one for notes in self.notes.values() for one in notes):
            key, question = said["key"], self.books.questions.get(said["key"])
            if said["kind"] == "answer":
                self._check_answer(said, question, told)
            elif said["kind"] == "lost":
                self.verdict.expect(question, f"{key}: said to be charged, and is not on the ledger")
            elif said["kind"] == "disk":
                was_full = any(fault["kind"] in ("disk full", "read-only") for fault in self.faults)
                self.verdict.expect(was_full, f"{key}: the disk was blamed for nothing: {said['what']}")
            elif said["kind"] in ("wrong", "failed"):
                why = (
                    "refused without a reason" if said["kind"] == "wrong" else "an error that nobody promised"
                )
                self.verdict.expect(False, f"{key}: {why}: {said['what']}")

    def _check_answer(
        self, said: dict[str, Any], question: Question | None, told: dict[str, list[int]]
    ) -> None:
        key, labels = said["key"], said["labels"]
        first = told.setdefault(key, labels)
        self.verdict.expect(first == labels, f"{key}: two answers, {first} and {labels}")
        known = None if question is None else question.labels
        self.verdict.expect(known is not None, f"{key}: an acknowledged answer is not on the ledger")
        if known is not None:
            self.verdict.expect(
                known == labels, f"{key}: {labels} was acknowledged, {known} is on the ledger"
            )
        if said["head"] and question is not None and question.settled is not None:
            number, digest = said["head"]
            there = number < len(self.rows) and self.rows[number].hash == digest
            self.verdict.expect(there, f"line {number} was shown as the last one, and is gone or another")
            late = number >= question.settled
            self.verdict.expect(
                late, f"{key}: the head was at line {number}, its answer in {question.settled}"
            )

    # --- What the ledger says ---

    def _check_terms(self) -> None:
        terms = self.books.terms
        begun = [terms.get("epsilon"), terms.get("delta")] == self.facts["budget"]
        self.verdict.expect(begun, "the ledger was begun with another budget")
        held = {name: [one.epsilon, one.delta] for name, one in self.books.accounts.items() if name}
        self.verdict.expect(held == self.facts["accounts"], "the accounts are not those that were opened")
        grid = self.books.orders
        fine = grid.size > 50 and grid[0] > 1 and grid[-1] >= 256 and (np.diff(grid) > 0).all()
        self.verdict.expect(fine, "the grid of orders is not one to count on")

    def _check_items(self) -> None:
        """See that items by kind of outcome are not below what a query costs, and not far above it."""
        self._least: dict[bool, Floats] = {}
        self._known_costs: dict[Any, tuple[Floats, Floats]] = {}
        if self.facts["groups"]:
            return  # by curves alone; every charge is compared
        prices, known = self._priced((), 1), self.facts["mechanism"]
        for number, kinds in self.books.items.items():
            if len(kinds) != 2:
                self.verdict.expect(False, f"the item of line {number} has {len(kinds)} kinds of outcome")
                continue
            below = (kinds[0] < prices.silent * (1 - NEAR)) | (kinds[1] < prices.answered * (1 - NEAR))
            for at in np.flatnonzero(below):
                silent, answered = float(kinds[0][at]), float(kinds[1][at])
                more = _leak(float(self.books.orders[at]), silent, answered, **known)
                sound = more <= 5 * NEAR * answered
                self.verdict.expect(sound, f"the item of line {number} is charged less than it leaks")
            above = (kinds[0] > prices.most_silent * _MOST) & (kinds[0] > kinds[1] * _MOST)
            self.verdict.expect(not above.any(), f"the item of line {number} is dearer than its noise")
            for kind, plain in ((False, prices.silent), (True, prices.answered)):
                self._least[kind] = np.minimum(self._least.get(kind, plain), kinds[kind])

    def _priced(self, absent: tuple[str, ...], weight: int) -> Prices:
        known, scale = self.facts["mechanism"], self._scale(absent)
        return _prices(
            tuple(self.books.orders.tolist()), known["sigma"] * scale, known["sigma_check"] * scale, weight
        )

    def _present(self, absent: tuple[str, ...]) -> dict[str, int]:
        """Return the votes of a ballot of every group that takes part."""
        there = {name: votes for name, (votes, _) in self.facts["groups"].items() if name not in absent}
        common = math.gcd(*there.values()) if there else 1
        return {name: votes // common for name, votes in there.items()}

    def _scale(self, absent: tuple[str, ...]) -> float:
        """Return by how much the noise grows with the votes that there are."""
        if not self.facts["groups"]:
            return 1.0
        n_votes = sum(votes * self.facts["groups"][name][1] for name, votes in self._present(absent).items())
        return n_votes / self.facts["mechanism"]["n_teachers"]

    def _costs(
        self, account: str, absent: tuple[str, ...], labels: list[int] | None
    ) -> tuple[Floats, Floats]:
        """Return the least and the most that an account pays for labels, or for a question without any."""
        n_silent = 0 if labels is None else sum(label < 0 for label in labels)
        asked = (account, absent, n_silent)
        if asked not in self._known_costs:
            self._known_costs[asked] = self._cost(account, absent, n_silent)
        return self._known_costs[asked]

    def _cost(self, account: str, absent: tuple[str, ...], n_silent: int) -> tuple[Floats, Floats]:
        n_answered = self.facts["n_rows"] - n_silent
        present = self._present(absent)
        weights = [present[account]] if account in present else list(present.values()) or [1]
        every = [self._priced(absent, weight) for weight in weights]
        least = most = np.max([one.cost(n_silent, n_answered) for one in every], axis=0)
        if self._least:
            # Check and answer have a joint price where that is less: seen to be enough, and at most both.
            least = n_silent * self._least[False] + n_answered * self._least[True]
            most = np.maximum(most, np.max([one.most(n_silent, n_answered) for one in every], axis=0))
        return least * (1 - NEAR), most * _MOST

    def _check_question(self, key: str, question: Question) -> None:
        space = next((s for s in self.facts["spaces"] if key.startswith(s["key"])), None)
        number = "" if space is None else key.removeprefix(space["key"])
        if space is None or number not in self._numbers:
            self.verdict.expect(False, f"{key}: nobody asked that")
            return
        said = question.event.get("groups") or {}
        absent = tuple(f"group/{name}" for name in said.get("absent", ()))
        self._check_event(key, question.event, self._scale(absent))
        payers = {MAIN, *self._present(absent), *([space["account"]] if space["account"] else [])}
        missing = payers - question.bills.keys()
        self.verdict.expect(not missing, f"{key}: not charged to {', '.join(sorted(missing))!r}")
        self.verdict.expect(question.bills.keys() <= payers, f"{key}: charged to others")
        for name in payers & question.bills.keys():
            self._check_charge(key, question, name, absent)
        for name in absent:
            gone = self._is_short(name, (), 0, question.line)
            self.verdict.expect(gone, f"{key}: {name} was left out, with budget left")

    def _check_event(self, key: str, event: dict[str, Any], scale: float) -> None:
        """See that a question says what its price goes by, so that it can be priced again for ever."""
        known, said = self.facts["mechanism"], event.get("parameters", {})
        wanted = [known["sigma"] * scale, known["sigma_check"] * scale, known["threshold"] * scale]
        noise = [said.get(name, 0.0) for name in ("sigma", "sigma_threshold", "threshold")]
        told = [event.get(name) for name in ("mechanism", "noise", "n_queries")]
        same = told == ["ConfidentGNMax", "secure", self.facts["n_rows"]] and "queries" in event
        same = same and np.allclose(noise, wanted, rtol=1e-6)
        self.verdict.expect(same, f"{key}: its event does not say how it was answered")

    def _check_charge(self, key: str, question: Question, name: str, absent: tuple[str, ...]) -> None:
        """Compare what one account pays with what the labels cost, at every order."""
        expect, who = self.verdict.expect, name if name != MAIN else "the data"
        reserved = self.books.curve(question.bills[name])
        charged = self.books.curve(question.charged[name])
        least, most = self._costs(name, absent, None)
        expect((reserved >= least).all(), f"{key}: less than its price was reserved for {who}")
        expect((reserved <= most).all(), f"{key}: more than its price was reserved for {who}")
        if question.settled is None:
            return
        if question.labels is None or len(question.labels) != self.facts["n_rows"]:
            expect(False, f"{key}: settled without its labels")
            return
        least, most = self._costs(name, absent, question.labels)
        expect((charged >= least).all(), f"{key}: {who} was charged less than its labels cost")
        expect((charged <= most).all(), f"{key}: {who} was charged more than its labels cost")

    def _is_short(self, account: str, absent: tuple[str, ...], first: int, last: int) -> bool:
        """Return whether an account could not pay for a question, somewhere among these lines."""
        held: Account = self.books.accounts[account]
        at = int(np.flatnonzero(self.books.orders == held.order)[0])
        price = float(self._costs(account, absent, None)[1][at])
        heights = held.heights[first : last + 1]
        return bool(heights) and max(heights) + price > held.most * (1 - 1e-9)

    def _may_be_short(self, account: str, first: int, last: int) -> bool:
        """Return whether an account could not pay, whichever other group had left by then."""
        gone = [(), *((name,) for name in self.facts["groups"] if name != account)]
        return any(self._is_short(account, absent, first, last) for absent in gone)

    def _check_refusals(self) -> None:
        """See that who was refused for want of budget was refused while there was none."""
        for notes in self.notes.values():
            first = 0
            for said in notes:
                question = self.books.questions.get(said["key"])
                if said["kind"] == "answer" and question is not None and question.settled is not None:
                    first = max(first, question.settled)
                if said["kind"] != "refused":
                    continue
                last = len(self.rows) if question is None else question.line
                account = said["account"] or MAIN
                # A service says of its groups that one cannot pay, and not which.
                whoever = [account, *(self.facts["groups"] if account == MAIN else ())]
                if account not in self.books.accounts:
                    self.verdict.expect(False, f"{said['key']}: refused for an account that there is not")
                    continue
                short = any(self._may_be_short(one, first, last) for one in whoever)
                words = (
                    f"{said['key']}: refused, with budget left for {account or 'the data'}: {said['what']}"
                )
                self.verdict.expect(short, words)

    # --- Keys ---

    def _check_keys(self, clerks: list[Notes]) -> None:
        for said in (one for notes in clerks for one in notes if one["kind"] == "failed"):
            self.verdict.expect(False, f"a clerk met an error that nobody promised: {said['what']}")
        found = query(self.facts["keys"], "SELECT id, revoked FROM tellers_keys")
        revoked = dict(found)
        # Read again: what was revoked by now may have been asked for since.
        later = [said for notes in self._clerk_notes() for said in notes]
        ended = {said["id"] for said in later if said["kind"] == "revoking"}
        for notes in clerks:
            for said in notes:
                if said["kind"] == "made":
                    self.verdict.expect(said["id"] in revoked, "a key that was handed out is gone")
                    unasked = said["id"] in ended or revoked.get(said["id"]) is None
                    self.verdict.expect(unasked, "a key was revoked that nobody revoked")
                elif said["kind"] == "revoked":
                    self.verdict.expect(revoked.get(said["id"]) is not None, "a revoked key is good again")
        self._check_rate(clerks)

    def _check_rate(self, clerks: list[Notes]) -> None:
        """See that nobody got more than a minute allows, as long as clock and disk were left alone."""
        # Counts are not flushed: a server that crashed has lost some, which is said so and allowed.
        harmless = ("client", "service") if "://" in self.facts["keys"] else _SPARE_COUNTS
        resets = [fault["at"] for fault in self.faults if not fault["kind"].startswith(harmless)]
        hits = sorted(
            (said["begun"], said["ended"]) for notes in clerks for said in notes if said["kind"] == "hit"
        )
        _, most = self.facts["rate"]
        for at, (begun, _) in enumerate(hits):
            end = min([begun + 60.0, *(reset for reset in resets if reset >= begun)])
            n = sum(ended <= end for _, ended in hits[at : at + 4 * most])
            self.verdict.expect(n <= most, f"more than the {most} requests of a minute were let through: {n}")

    # --- Numbers for the report ---

    def _count(self) -> None:
        notes = [said for some in self.notes.values() for said in some]
        answers = [said for said in notes if said["kind"] == "answer"]
        questions = self.books.questions.values()
        self.verdict.counts = {
            "acknowledged": len(answers),
            "questions answered": len({said["key"] for said in answers}),
            "refused for want of budget": sum(said["kind"] == "refused" for said in notes),
            "reservations": len(questions),
            "reservations never settled": sum(one.settled is None for one in questions),
            "questions to the teachers": sum(self.asked.values()),
            "checkpoints": self.books.n_checkpoints,
            "time-outs": sum(said["kind"] == "waited" for said in notes),
            "errors of a full or read-only disk": sum(said["kind"] == "disk" for said in notes),
        }
        self.verdict.longest = max((said["seconds"] for said in answers), default=0.0)
        self.verdict.trouble = dict(Counter(said["what"] for said in notes if said["kind"] == "waited"))
        for said in answers:
            if said["seconds"] > _SLOW:
                met = said["met"] or "nothing said"
                self.verdict.trouble[f"{said['key']} took {said['seconds']:.1f} s; on the way: {met}"] = 1
        last = len(self.rows) - 1
        groups = list(self.facts["groups"])
        no_group = bool(groups) and all(self._may_be_short(name, last, last) for name in groups)
        self.verdict.is_dry = no_group or self._may_be_short(MAIN, last, last)


def _journal(path: Path) -> Notes:
    """Return the whole lines of a journal."""
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def main() -> None:
    cases: dict[str, Case] = {}
    for line in sys.stdin:
        folder = json.loads(line)["folder"]
        try:
            if folder not in cases:
                cases = {folder: Case(Path(folder))}
            verdict = cases[folder].look()
        except Exception as error:
            verdict = Verdict([f"the ledger cannot be read: {type(error).__name__}: {error}"])
        print(json.dumps(asdict(verdict)), flush=True)


if __name__ == "__main__":
    main()
