"""Vote files for those outside the room: questions go in, prices and releases come out, votes stay here."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from numpy.typing import ArrayLike

from ..accounting.costs import Account, account
from ..accounting.plan import Consensus, LabelConsensus
from ..mechanisms.base import Mechanism
from ..privacy import noise
from ..privacy.votes import LabelVotes, Votes
from ..teachers.pool import VotedPool
from ..teachers.store import LabelVoteFile, VoteFile, read_label_votes, read_votes

if TYPE_CHECKING:
    from ..accounting._publishable import Method
    from ..accounting.smooth import PublicationRecord, PublishedEpsilon, PublishPlan

Kind = Literal["classes", "labels"]
AnyVotes = Votes | LabelVotes
_N_PROXY = {"classes": 1000, "labels": 400}
# Known to this module alone: no attribute of what it hands out leads there.
_files: "WeakKeyDictionary[HeldVotes, VoteFile | LabelVoteFile]" = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class HeldVotes:
    """Votes of a file, held in the room: what anyone may know of them, and what may be asked of them.

    `width` is the number of classes, or of labels per query; `resolution` in how many parts of a vote labels
    are counted. `notes` say what was not declared and had to be taken from the file.

    Guarantee: nothing that can be reached from here is a ballot or a count.
    Assumes:   whoever holds it does not dig in this module.
    Reference: docs/architecture.md, "Votes stay in the room".

    >>> import tempfile
    >>> from tellers import GNMax
    >>> from tellers.accounting import Consensus
    >>> from tellers.teachers import save_votes
    >>> path = Path(tempfile.mkdtemp()) / "votes.npz"
    >>> save_votes(path, Consensus().votes(250, 10, n_queries=20, seed=7)[0])
    >>> votes = open_votes(path, n_classes=10)
    >>> votes
    HeldVotes(kind='classes', n_queries=20, n_teachers=250, width=10, resolution=1, notes=())
    >>> round(votes.account(GNMax(sigma=40.0), delta=1e-5).public.epsilon, 2)
    0.49
    """

    kind: Kind
    n_queries: int
    n_teachers: int
    width: int
    resolution: int = 1
    notes: tuple[str, ...] = ()

    def account(self, mechanism: Mechanism, **terms: Any) -> Account:
        """Return what releasing these votes costs; `terms` are those of `accounting.account`."""
        file = _files[self]
        student = getattr(file, "student", None)
        return account(mechanism, file.votes, student=student, answered=file.answered, **terms)

    def propose(
        self,
        mechanism: Mechanism,
        record: str | PathLike[str],
        *,
        delta: float,
        confidence: float = 0.95,
        method: "Method | None" = None,
        proxy: str | PathLike[str] | None = None,
        thresholds: ArrayLike | None = None,
    ) -> "FileProposal":
        """Return how a cost of these votes would be published; nothing is charged, and no vote is looked at.

        Order and noise are chosen on the public votes of `proxy`, or on made-up ones. A record of earlier
        publications keeps its plan.
        """
        from ..accounting.smooth import PublicationRecord
        from .publication_plan import plan_publication

        book, notes = PublicationRecord(Path(record)), list(self.notes)
        plan = book.plan()
        if plan is not None:
            notes.append(
                f"These votes were published before, with the plan in {book.path.name}; it stays, and this "
                "publication pays on top of the earlier ones."
            )
            return FileProposal(plan, book, book.charged, tuple(notes))
        public, assumed = proxy_votes(
            proxy, self.kind, self.n_teachers, self.width, resolution=self.resolution, thresholds=thresholds
        )
        if assumed:
            notes.append(assumed)
        plans = plan_publication(
            mechanism, public, n_queries=self.n_queries, delta=delta, confidence=confidence, method=method
        )
        return FileProposal(plans[0], book, book.charged, tuple(notes))

    def publish(self, mechanism: Mechanism, proposal: "FileProposal", *, delta: float) -> "PublishedEpsilon":
        """Charge the record, draw, write down what came out, and return it.

        Of a public price nothing is drawn and nothing is charged.
        """
        from ..accounting.smooth import publish

        file, source, plan = _files[self], noise.secure(), proposal.plan
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


@dataclass(frozen=True)
class FileProposal:
    """How a cost would be published, where it is charged, and what was charged there before."""

    plan: "PublishPlan"
    record: "PublicationRecord"
    charged_before: float
    notes: tuple[str, ...] = ()

    @property
    def is_drawn(self) -> bool:
        """Return whether noise is drawn and paid for; a price that holds for any votes needs neither."""
        return self.plan.method != "independent"


def open_votes(
    path: str | PathLike[str],
    *,
    kind: Kind = "classes",
    n_classes: int | None = None,
    resolution: int | None = None,
    thresholds: ArrayLike | None = None,
) -> HeldVotes:
    """Read a vote file, check it, and hand out what may be asked of it (see `teachers.read_votes`)."""
    if kind == "classes":
        return hold_votes(read_votes(path, n_classes=n_classes))
    return hold_votes(read_label_votes(path, resolution=resolution, thresholds=thresholds))


def hold_votes(file: VoteFile | LabelVoteFile) -> HeldVotes:
    """Take votes into the room, and return what stands for them outside."""
    votes: Any = file.votes
    many = hasattr(votes, "n_labels")
    held = HeldVotes(
        "labels" if many else "classes",
        len(votes),
        votes.n_teachers,
        votes.n_labels if many else votes.n_classes,
        votes.resolution if many else 1,
        tuple(getattr(file, "notes", ())),
    )
    _files[held] = file
    return held


def open_pool(path: str | PathLike[str], *, n_classes: int = 0, n_labels: int = 0) -> VotedPool:
    """Read a vote file, on so many classes or labels, as a pool that a room can ask by row numbers."""
    if not n_labels:
        return VotedPool(read_votes(path, n_classes=n_classes).votes)
    votes = read_label_votes(path).votes
    if votes.n_labels != n_labels:
        raise ValueError(f"Expected votes on {n_labels} labels in {path}, got votes on {votes.n_labels}.")
    return VotedPool(votes)


def proxy_votes(
    proxy: AnyVotes | str | PathLike[str] | None,
    kind: Kind,
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
    if not isinstance(proxy, AnyVotes) and kind == "labels":
        parts = resolution if resolution > 1 else None
        public = read_label_votes(proxy, resolution=parts, thresholds=thresholds).votes
    elif not isinstance(proxy, AnyVotes):
        public = read_votes(proxy, n_classes=width).votes
    found = hold_votes(VoteFile(public))
    if (found.kind, found.n_teachers, found.width) != (kind, n_teachers, width):
        raise ValueError(
            f"Expected a proxy of {n_teachers} teachers and {width} {kind}, got {found.n_teachers} and "
            f"{found.width}."
        )
    return public, ""
