"""`tellers audit`: what can be proved of epsilon from outside, beside what is claimed."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import options, show

if TYPE_CHECKING:
    from rich.console import Console

    from ..accounting.audit.mechanism import MechanismAudit
    from ..accounting.audit.membership import MembershipAudit


_RUN = "A whole run"
_MECHANISM = "A mechanism"


MethodName = StrEnum("MethodName", ["losses", "queries", "events"])


@options.takes_mechanism(after="delta", sums=True)
def command(
    run: Annotated[
        Path | None,
        options.argument("[RUN|CONFIG]", "The folder of a run, or its settings. Without it: --mechanism."),
    ] = None,
    shadows: Annotated[
        int | None, options.option("Shadow runs, half of them with canaries. Without it: 200.", panel=_RUN)
    ] = None,
    canaries: Annotated[
        int | None, options.option("Rows that one teacher gets on top. Without it: 20.", panel=_RUN)
    ] = None,
    mechanism: options.Mechanism = None,
    delta: options.MaybeDelta = None,
    resolution: options.Resolution = None,
    teachers: Annotated[
        int | None, options.option("How many teachers vote. Without it: 50.", panel=_MECHANISM)
    ] = None,
    classes: Annotated[
        int | None, options.option("Number of classes. Without it: 10.", panel=_MECHANISM)
    ] = None,
    labels: Annotated[
        int | None, options.option("Labels per query, for mechanisms with many.", panel=_MECHANISM)
    ] = None,
    queries: Annotated[
        int | None,
        options.option("How often each release asks the same query. Without it: once.", panel=_MECHANISM),
    ] = None,
    samples: Annotated[
        int | None, options.option("Releases at each of the two votes. Without it: 20,000.", panel=_MECHANISM)
    ] = None,
    method: Annotated[
        MethodName | None,
        options.option(
            "losses: weighs releases by the law that the mechanism states, after holding them against "
            "it; samples x delta should be 50 or more. queries: outcomes of single queries, composed. "
            "events: of all queries together, finds at most log(samples). Without it: losses, or queries "
            "where there is no law.",
            panel=_MECHANISM,
        ),
    ] = None,
    published: Annotated[
        bool,
        options.option(
            "tau, adaptive-gnthreshold: hold the price that papers print against it.",
            "--published",
            panel=_MECHANISM,
        ),
    ] = False,
    confidence: Annotated[float, options.option("How sure the bound is.", min=0.0, max=1.0)] = 0.95,
    as_json: options.Json = False,
    **given: Any,
) -> None:
    """Prove a lower bound on epsilon from releases, and hold it against the claim.

    A claim comes from a proof and is an upper bound. An audit comes from trying, and is a lower one: if it is
    above the claim, something is wrong; if not, nothing was found. It cannot show that a claim is true.

    A whole run is done again many times from its votes on, half of the time with canaries among the rows of
    one teacher; the audit is how well its students tell. A mechanism is audited at two made-up votes that
    differ in one ballot. They are searched for by releases at every count of every class or label, whatever
    the mechanism states of itself. A leak that comes with probability p at votes that are tried n times stays
    unseen with chance (1 - p)^n.

    Example:

    \b
    tellers audit study --shadows 200
    tellers audit --mechanism gnmax --sigma 5 --delta 0.01 --queries 20
    tellers audit --mechanism tau --sigma 2 --max-norm 1.41422 --labels 4 --delta 0.01 \\
      --queries 100 --samples 5000 --method losses --published
    """
    given["resolution"] = resolution
    of_mechanism = {
        **given, "mechanism": mechanism, "delta": delta, "teachers": teachers, "classes": classes,
        "labels": labels, "queries": queries, "samples": samples, "method": method,
        "published": published or None,
    }  # fmt: skip
    if run is not None:
        options.refuse(of_mechanism, f"for the run {run}, got it", "Leave the run out to audit a mechanism.")
        n_shadows, n_canaries = 200 if shadows is None else shadows, 20 if canaries is None else canaries
        _audit_run(run, n_shadows, n_canaries, confidence, as_json=as_json)
        return
    if mechanism is None:
        raise ValueError(
            "Expected the folder of a run, its settings, or --mechanism, got none of them. For example: "
            "tellers audit study, or tellers audit --mechanism gnmax --sigma 5 --delta 0.01"
        )
    of_run = {"shadows": shadows, "canaries": canaries}
    options.refuse(of_run, "for a mechanism, got it", "They belong to a run.")
    named, delta = options.require_for_file(mechanism, delta)
    if options.is_sum(named):
        shape = {"teachers": teachers, "classes": classes, "labels": labels, "queries": queries}
        foreign = {**shape, "method": method, "published": published or None}
        options.refuse(foreign, f"for --mechanism {named}, whose worst neighbour is known", "Leave it out.")
        from ..privacy import noise

        how = {"delta": delta, "noise": noise.secure(), "confidence": confidence}
        with show.progress_bar(1, "releases", wanted=not as_json):
            chosen, audit = _audit_sum(named, given, n_samples=20_000 if samples is None else samples, **how)
        _tell(audit, "Two sums that differ in one ballot, which turned round.", chosen, False, as_json)
        return
    from ..accounting.audit.mechanism import AdaptiveAsPublished, audit_at_bad_pair, published_claim
    from ..privacy import noise

    chosen = _built(named, labels, given)
    if published and named == "adaptive-gnthreshold":
        chosen = AdaptiveAsPublished(sigma=chosen.sigma, n_labels=chosen.n_labels)
    elif options.is_label_mechanism(named):
        advice = "Labels are counted: --labels."
        options.refuse({"classes": classes}, f"for --mechanism {named}, got it", advice)
    n_queries, n_samples = 1 if queries is None else queries, 20_000 if samples is None else samples
    with show.progress_bar(2 * n_samples * n_queries, "releases", wanted=not as_json) as progress:
        audit, pair = audit_at_bad_pair(
            chosen,
            50 if teachers is None else teachers,
            n_classes=10 if classes is None else classes,
            delta=delta,
            noise=noise.secure(),
            n_samples=n_samples,
            n_queries=n_queries,
            confidence=confidence,
            method=None if method is None else method.value,
            claim=published_claim(chosen) if published else None,
            progress=progress,
        )
    _tell(audit, pair, chosen, published, as_json)


def _tell(audit: "MechanismAudit", pair: str, chosen: object, published: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**audit.as_dict(), "pair": pair, "published": published}, allow_nan=False))
    else:
        print_mechanism(show.console(), audit, pair, chosen, published=published)


def _audit_sum(name: str, given: dict[str, Any], **how: Any) -> tuple[Any, "MechanismAudit"]:
    options.require_parameters(name, given)
    from ..accounting.audit.sums import audit_sum
    from ..accounting.sum_plan import given_sum

    chosen = given_sum(given["sigma"])
    return chosen, audit_sum(chosen, **how)


def _built(name: str, n_labels: int | None, given: dict[str, Any]) -> Any:
    if not options.is_label_mechanism(name):
        advice = "Say how many classes there are: --classes."
        options.refuse({"labels": n_labels}, f"for --mechanism {name}, got it", advice)
        return options.build_mechanism(name, **given)
    if n_labels is None:
        options.require_parameters(name, given)
        raise ValueError(f"Expected --labels for --mechanism {name}, got none. For example: --labels 4")
    return options.build_mechanism(name, n_labels=n_labels, **given)


def _audit_run(place: Path, n_shadows: int, n_canaries: int, confidence: float, *, as_json: bool) -> None:
    from ..runs._folder import RunFolder
    from ..runs._shadows import audit_run
    from ..runs.settings.files import read_config
    from .outcome import steps_shown

    folder = RunFolder(place) if place.is_dir() else None
    settings = read_config(place if folder is None else folder.config)
    with steps_shown(wanted=not as_json) as steps:
        audit = audit_run(
            settings, folder=folder, n_shadows=n_shadows, n_canaries=n_canaries, confidence=confidence,
            show=steps,
        )  # fmt: skip
    if as_json:
        found = {**audit.as_dict(), "shadows": n_shadows, "canaries": n_canaries}
        print(json.dumps(found, allow_nan=False))
    else:
        print_run(show.console(), audit, n_shadows, n_canaries)


def print_mechanism(
    screen: "Console", audit: "MechanismAudit", pair: str, mechanism: object, *, published: bool
) -> None:
    """Print what an audit of a mechanism found, for people."""
    screen.print(f"\n{mechanism}", style="dim", markup=False)
    times = f", asked {audit.n_queries:,} times each" if audit.n_queries > 1 else ""
    screen.print(f"{audit.n_samples:,} releases at each of two votes that differ in one ballot{times}.")
    screen.print(f"{pair}\n", style="dim", markup=False)
    rows = show.table("", "epsilon", "", numbers=(1,))
    how = f"with confidence {audit.confidence:.6g}, by {audit.method}"
    rows.add_row("found at least", down(audit.epsilon), how)
    if audit.exact is not None:
        rows.add_row("exact", show.figure(audit.exact), f"of these votes, by the stated law: {audit.law}")
    words = "as published" if published else "the price, whatever the votes"
    rows.add_row("claimed at most", show.figure(audit.claim), words)
    screen.print(show.indented(rows))
    _print_verdict(screen, audit)


def print_run(screen: "Console", audit: "MembershipAudit", n_shadows: int, n_canaries: int) -> None:
    """Print what an audit of a whole run found, for people."""
    laid = f"up to {n_canaries:,} canaries in one teacher"  # no more than were asked
    screen.print(f"\n{n_shadows:,} shadow runs, half of them with {laid}.\n")
    rows = show.table("", "", "")
    rows.add_row(
        "found at least", f"epsilon {down(audit.epsilon)}", f"with confidence {audit.confidence:.6g}"
    )
    rows.add_row("claimed at most", f"epsilon {show.figure(audit.claim)}", f"at delta {audit.delta:g}")
    rows.add_row("the attack", f"AUC {audit.auc:.2f}", f"0.5 is guessing; {audit.attack}")
    screen.print(show.indented(rows))
    _print_verdict(screen, audit)
    screen.print(show.note("an audit looks at private rows: keep its numbers to yourself."))


def down(epsilon: float) -> str:
    """Return an epsilon with three decimals, rounded down: what was found is found at least."""
    return f"{math.floor(1000 * epsilon) / 1000:.3f}"


def _print_verdict(screen: "Console", audit: "MechanismAudit | MembershipAudit") -> None:
    screen.print(audit.summary, style="green" if audit.holds else "bold red")
    if audit.holds:
        screen.print("[dim]An audit can refute a claim, and cannot prove it.[/dim]")
