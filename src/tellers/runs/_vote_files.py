"""Publishing what the votes of a file cost; votes to plan that on; pools of stored votes."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from ..accounting._publishable import Method
from ..accounting.plan import Consensus, LabelConsensus
from ..accounting.smooth import PublicationRecord, PublishedEpsilon, PublishPlan, publish
from ..mechanisms.base import Mechanism
from ..privacy import noise
from ..privacy.votes import LabelVotes, Votes, kept
from ..teachers.pool import VotedPool
from ..teachers.store import HeldVotes, VoteFile, hold_votes, read_votes
from .publication_plan import plan_publication

AnyVotes = Votes | LabelVotes
_N_PROXY = {"classes": 1000, "labels": 400}


@dataclass(frozen=True)
class FileProposal:
    """How a cost would be published, where it is charged, and what was charged there before."""

    plan: PublishPlan
    record: PublicationRecord
    charged_before: float
    notes: tuple[str, ...] = ()

    @property
    def is_drawn(self) -> bool:
        """Return whether noise is drawn and paid for; a price that holds for any votes needs neither."""
        return self.plan.method != "independent"


def propose_for_file(
    votes: HeldVotes,
    mechanism: Mechanism,
    record: str | PathLike[str],
    *,
    delta: float,
    confidence: float = 0.95,
    method: Method | None = None,
    proxy: str | PathLike[str] | None = None,
    thresholds: ArrayLike | None = None,
) -> FileProposal:
    """Return how a cost of these votes would be published; nothing is charged, and no vote is looked at.

    Order and noise are chosen on the public votes of `proxy`, or on made-up ones. A record of earlier
    publications keeps its plan.
    """
    book, notes = PublicationRecord(Path(record)), list(votes.notes)
    plan = book.plan()
    if plan is not None:
        notes.append(
            f"These votes were published before, with the plan in {book.path.name}; it stays, and this "
            "publication pays on top of the earlier ones."
        )
        return FileProposal(plan, book, book.charged, tuple(notes))
    public, assumed = proxy_votes(
        proxy, votes.kind, votes.n_teachers, votes.width, resolution=votes.resolution, thresholds=thresholds
    )
    if assumed:
        notes.append(assumed)
    plans = plan_publication(
        mechanism, public, n_queries=votes.n_queries, delta=delta, confidence=confidence, method=method
    )
    return FileProposal(plans[0], book, book.charged, tuple(notes))


def publish_file(
    votes: HeldVotes, mechanism: Mechanism, proposal: FileProposal, *, delta: float
) -> PublishedEpsilon:
    """Charge the record, draw, write down what came out, and return it.

    Of a public price nothing is drawn and nothing is charged.
    """
    file, source, plan = kept(votes), noise.secure(), proposal.plan
    if proposal.is_drawn:
        proposal.record.charge(mechanism, plan, delta=delta, noise=source)
    published = publish(
        mechanism,
        file.votes,
        source,
        plan=plan,
        delta=delta,
        answered=file.answered,
        charged_before=proposal.charged_before,
    )
    if proposal.is_drawn:
        proposal.record.settle(published)
    return published


def open_pool(path: str | PathLike[str], *, n_classes: int = 0, n_labels: int = 0) -> VotedPool:
    """Read a vote file, on so many classes or labels, as a pool that a room can ask by row numbers."""
    if not n_labels:
        return VotedPool(read_votes(path, n_classes=n_classes).votes)
    votes = read_votes(path, kind="labels").votes
    if votes.n_labels != n_labels:
        raise ValueError(f"Expected votes on {n_labels} labels in {path}, got votes on {votes.n_labels}.")
    return VotedPool(votes)


def proxy_votes(
    proxy: AnyVotes | str | PathLike[str] | None,
    kind: Literal["classes", "labels"],
    n_teachers: int,
    width: int,
    *,
    resolution: int = 1,
    thresholds: ArrayLike | None = None,
) -> tuple[AnyVotes, str]:
    """Return public votes to plan on, refusing others than are planned for; what was assumed, if made up."""
    public: Any = proxy
    if proxy is None:
        made_up: Any = LabelConsensus() if kind == "labels" else Consensus()
        more = {"resolution": resolution} if kind == "labels" else {}
        public = made_up.votes(n_teachers, width, n_queries=_N_PROXY[kind], seed=0, **more)
        words = f"Order and noise were chosen on made-up votes: {made_up}."
        return (public if kind == "labels" else public[0]), words
    if not isinstance(proxy, Votes):
        terms: dict[str, Any] = {"n_classes": width}
        if kind == "labels":
            terms = {"resolution": resolution if resolution > 1 else None, "thresholds": thresholds}
        public = read_votes(proxy, kind=kind, **terms).votes
    found = hold_votes(VoteFile(public))
    if (found.kind, found.n_teachers, found.width) != (kind, n_teachers, width):
        raise ValueError(
            f"Expected a proxy of {n_teachers} teachers and {width} {kind}, got {found.n_teachers} and "
            f"{found.width}."
        )
    return public, ""
