"""What must hold whoever was killed: the books against everybody's notes."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ground import KNOWN, MECHANISM, N_ROWS, PRICE, Ground
from witness import read_asked, read_journal

from tellers import SILENT, RdpCurve, Unit
from tellers.ledger import export_ledger

_ROUNDING = 1e-9
_SLOW = 10.0  # seconds
_SILENT, _ANSWERED = (MECHANISM.item(Unit(), **KNOWN).price(kind) for kind in (0, 1))


@dataclass
class Verdict:
    """What a look at the books found: violations, or none, and what may be counted."""

    violations: list[str] = field(default_factory=list)
    head: str = ""
    n_left: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    longest: float = 0.0
    trouble: dict[str, int] = field(default_factory=dict)

    def expect(self, holds: Any, words: str) -> None:
        if not holds:
            self.violations.append(words)


def judge(ground: Ground, head: str, out: Path) -> None:
    """Look at the books, and leave the verdict in a file."""
    try:
        verdict = look(ground, head)
    except Exception as error:
        verdict = Verdict([f"the books cannot be read: {type(error).__name__}: {error}"])
    out.write_text(json.dumps(vars(verdict)))


def look(ground: Ground, head: str) -> Verdict:
    """Compare the books with what askers were told and with what teachers were asked.

    Notes are read first: what was noted before must be on the books now.
    """
    verdict = Verdict()
    notes = _notes(ground)
    asked = Counter(space.key(n) for space, n in map(ground.space_of, read_asked(ground.folder)))
    with ground.open_ledger() as ledger:
        verdict.head = ledger.verify(head or None)
        entries = {entry.key: entry for entry in ledger.entries()}
        accounts, spent = ledger.accounts(), ledger.spent
        if verdict.head != ledger.verify():
            spent = None  # somebody wrote in between; sums are compared when all is quiet
    _check_notes(verdict, notes, entries)
    for key, times in asked.items():
        verdict.expect(key in entries, f"{key}: teachers were asked, and no reservation is on the books")
        verdict.expect(times == 1, f"{key}: teachers were asked {times} times")
    _check_entries(verdict, entries)
    _check_sums(verdict, ground, entries, accounts, spent=spent, notes=notes)
    _count(verdict, notes, entries, asked)
    return verdict


def _notes(ground: Ground) -> list[dict[str, Any]]:
    found = []
    for number in range(2 * len(ground.spaces)):
        space = ground.spaces[number // 2]
        for said in read_journal(ground.folder / f"asker-{number}.jsonl"):
            found.append({**said, "key": space.key(said["n"])})
    return found


def _check_notes(verdict: Verdict, notes: list[dict[str, Any]], entries: dict[str, Any]) -> None:
    told: dict[str, list[int]] = {}
    for said in notes:
        key, entry = said["key"], entries.get(said["key"])
        if said["kind"] == "answer":
            first = told.setdefault(key, said["labels"])
            verdict.expect(first == said["labels"], f"{key}: two answers, {first} and {said['labels']}")
            release = None if entry is None else entry.release
            verdict.expect(release is not None, f"{key}: an acknowledged release is not on the books")
            if release is not None:
                same = release.labels.tolist() == said["labels"]
                verdict.expect(
                    same, f"{key}: {said['labels']} was acknowledged, {release.labels} is on the books"
                )
        elif said["kind"] == "lost":
            verdict.expect(entry is not None, f"{key}: said to be charged, and is not on the books")
        elif said["kind"] in ("wrong", "failed"):
            words = "refused without a reason" if said["kind"] == "wrong" else "an error that nobody promised"
            verdict.expect(False, f"{key}: {words}: {said['what']}")


def _check_entries(verdict: Verdict, entries: dict[str, Any]) -> None:
    for key, entry in entries.items():
        verdict.expect(_covers(entry.reserved, PRICE), f"{key}: less than its price was reserved")
        if not entry.is_settled:
            whole = np.array_equal(entry.charged.values, entry.reserved.values)
            verdict.expect(whole, f"{key}: not settled, and not charged in full")
        elif entry.release is not None:
            cost = _cost(entry.release.labels.tolist())
            verdict.expect(_covers(entry.charged, cost), f"{key}: charged less than was released")
        for name, paid in entry.also.items():
            verdict.expect(
                _covers(paid.charged, entry.charged), f"{key}: {name} paid less than the data's budget"
            )


def _check_sums(
    verdict: Verdict, ground: Ground, entries: dict[str, Any], accounts: dict[str, Any], *, spent: Any,
    notes: list[dict[str, Any]],
) -> None:  # fmt: skip
    accountant = ground.accountant
    total = _sum(entry.charged for entry in entries.values())
    released = _sum(
        _cost(labels) for labels in {s["key"]: s["labels"] for s in notes if s["kind"] == "answer"}.values()
    )
    verdict.expect(_covers(total, released), "less is charged than was released, at some order")
    # A sum in another order may end a rounding higher.
    rounded = RdpCurve(total.orders, total.values * (1 - _ROUNDING))
    verdict.expect(accountant.affords(rounded, RdpCurve.zero()), "the budget of the data is overspent")
    if spent is not None:
        equal = np.allclose(spent.values, total.values, rtol=_ROUNDING, atol=0)
        verdict.expect(equal, "the sum on the books is not the sum of its lines")
    for name, state in accounts.items():
        paid = _sum(e.also[name].charged for e in entries.values() if name in e.also)
        less = RdpCurve(paid.orders, paid.values * (1 - _ROUNDING))
        verdict.expect(state.accountant.affords(less, RdpCurve.zero()), f"the budget of {name} is overspent")
    verdict.n_left = int(accountant.affords(total, PRICE))


def _count(
    verdict: Verdict, notes: list[dict[str, Any]], entries: dict[str, Any], asked: Counter[str]
) -> None:
    answers = [said for said in notes if said["kind"] == "answer"]
    verdict.counts = {
        "acknowledged": len(answers),
        "questions answered": len({said["key"] for said in answers}),
        "refused for want of budget": sum(said["kind"] == "refused" for said in notes),
        "reservations": len(entries),
        "reservations never settled": sum(not entry.is_settled for entry in entries.values()),
        "questions to the teachers": sum(asked.values()),
        "time-outs": sum(said["kind"] == "waited" for said in notes),
    }
    verdict.longest = max((said["seconds"] for said in answers), default=0.0)
    verdict.trouble = dict(Counter(said["what"] for said in notes if said["kind"] == "waited"))
    for said in answers:
        if said["seconds"] > _SLOW:
            words = f"{said['key']} took {said['seconds']:.1f} s; on the way: {said['met'] or 'nothing said'}"
            verdict.trouble[words] = 1


def _cost(labels: list[int]) -> RdpCurve:
    """Return what labels cost, from them alone: one price for silence, another one for an answer."""
    assert len(labels) == N_ROWS
    return _sum(_SILENT if label == SILENT else _ANSWERED for label in labels)


def _covers(paid: RdpCurve, cost: RdpCurve) -> bool:
    return bool(np.all(paid.values >= cost.values * (1 - _ROUNDING)))


def _sum(curves: Any) -> RdpCurve:
    zero = RdpCurve.zero()
    values = [zero.values, *(curve.values for curve in curves)]
    return RdpCurve(zero.orders, np.sum(values, axis=0))


def keep_books(ground: Ground, path: Path) -> None:
    """Write the books beside the notes, as evidence."""
    try:
        with ground.open_ledger() as ledger, path.open("w") as stream:
            export_ledger(ledger, stream)
    except Exception as error:
        path.write_text(f"{type(error).__name__}: {error}\n")
