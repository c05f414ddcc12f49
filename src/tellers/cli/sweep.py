"""`tellers sweep`: what many settings would make of the votes that runs have kept."""

import json
from pathlib import Path
from typing import Annotated, Any

from . import options

_SHARES, _KIND, _CHANGED, _MAX_NORM = "0.3,0.5", "gnthreshold", 3, 1.5
_KINDS = (
    "gnthreshold, adaptive, adaptive-as-published, binary, tau or powerset; a list. Of one class each it is "
    "gnmax."
)
_NUMBERS, _COUNTS = "numbers such as 0.1,0.3", "whole numbers such as 0,100"
_LABELS = "Labels a row has at most: all that the thesis charges."


def command(
    runs: Annotated[list[Path], options.argument("RUN...", "Folders of runs that have voted, on one pool.")],
    sigma: Annotated[
        str, options.option("Noises on labels, as parts of the ensemble (σ_e).")
    ] = "0.1,0.2,0.3,0.5",
    share: Annotated[
        str | None,
        options.option("Shares that a label needs (th_e); not of one class each.", show_default=_SHARES),
    ] = None,
    kind: Annotated[str | None, options.option(_KINDS, show_default=_KIND)] = None,
    check: Annotated[
        str, options.option("Checks as share:noise (th_c:σ_c), a list; none is no check.")
    ] = "none",
    samples: Annotated[str, options.option("How many queries, a list; 0 is the whole pool.")] = "0",
    max_labels: Annotated[
        int | None, options.option("So many labels of a ballot count; 0: all.", min=0, show_default="0")
    ] = None,
    max_norm: Annotated[
        float | None, options.option("tau: how long a ballot counts.", show_default=str(_MAX_NORM))
    ] = None,
    n_top: Annotated[
        int | None, options.option("Checks look at so many of the largest sums.", min=1, show_default="1")
    ] = None,
    variance: Annotated[
        bool, options.option("Read noises as the variance per teacher, as the thesis does.", "--variance")
    ] = False,
    changed: Annotated[int | None, options.option(_LABELS, min=1, show_default=str(_CHANGED))] = None,
    delta: Annotated[float, options.option("Failure probability.")] = 1e-4,
    out: Annotated[
        Path | None,
        options.option("The page. Without it: sweep.html, among what is private.", metavar="FILE"),
    ] = None,
    show_private: options.ShowPrivate = False,
    as_json: options.Json = False,
) -> None:
    """Show what thresholds, noises and checks would make of votes that are kept; nobody is asked again.

    Scores, and costs that look at votes, are private: they go to a page among what is private, with F1 and
    mAP drawn over epsilon. What is printed without --show-private is the price, which holds for any votes.
    To look and take the best is a release nobody paid for: choose on teachers of public rows. Where every row
    has one class it is gnmax, confident where there is a check, and its accuracy. A run that has voted is
    enough (tellers run --until votes), and so is a folder of teachers of sounds.

    Example: tellers sweep study --sigma 0.1,0.2,0.3 --share 0.3,0.5 --check none,0.6:0.6
    """
    from ..privacy import noise
    from ..runs.report.sweep import sweep_table
    from ..runs.sweeps import read_stored_votes, sweep_settings, sweep_stored
    from . import show

    grid: dict[str, Any] = {
        "sigmas": options.listed("--sigma", sigma, float, _NUMBERS),
        "shares": options.listed("--share", share or _SHARES, float, _NUMBERS),
        "checks": _checks(check),
        "n_samples": [n or None for n in options.listed("--samples", samples, int, _COUNTS)],
        "max_labels": max_labels or 0,
        "noise": "variance" if variance else "deviation",
        "max_norm": _MAX_NORM if max_norm is None else max_norm,
        "n_top": n_top or 1,
        "kinds": [name.strip() for name in (kind or _KIND).split(",")],
    }
    if out is not None:
        options.require_place_for("--out", out)
    stored = [read_stored_votes(place) for place in runs]
    one_class = stored[0].of_classes
    if one_class:
        _require_classes(
            share=share, kind=kind, max_labels=max_labels, changed=changed, max_norm=max_norm, n_top=n_top
        )
        grid["kinds"] = ["gnmax"]
    settings = sweep_settings(**grid)
    with show.progress_bar(len(settings) * len(runs), "settings", wanted=not as_json) as progress:
        rows, page = sweep_stored(
            stored,
            settings,
            delta=delta,
            noise=noise.secure(),
            page=out,
            n_changed=changed or _CHANGED,
            progress=None if progress is None else lambda _done: progress(1),
        )
    told = sweep_table(rows).reveal() if show_private else [_public(row) for row in rows]
    if as_json:
        print(
            json.dumps({"page": str(page), "private": show_private, "rows": [_finite(row) for row in told]})
        )
        return
    _tell(told, page, private=show_private, one_class=one_class)


def _require_classes(**given: object) -> None:
    """Refuse what is said of many labels where every row has one class."""
    said = [options.flag(name) for name, value in given.items() if value not in (None, "gnmax")]
    if said:
        raise ValueError(
            f"Expected no {' or '.join(said)} where every row has one class: the class with the most votes "
            "is told. Leave it out."
        )


def _public(row: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        **asdict(row.setting), "n_teachers": row.n_teachers, "n_samples": row.n_samples,
        "public_epsilon": row.public_epsilon,
    }  # fmt: skip


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has neither infinity nor NaN."""
    return {
        name: None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value
        for name, value in row.items()
    }


def _tell(rows: list[dict[str, Any]], page: Path, *, private: bool, one_class: bool) -> None:
    from . import show

    scores = ("accuracy", "macro_f1") if one_class else ("macro_f1", "mean_average_precision")
    words = {"accuracy": "accuracy", "macro_f1": "F1", "mean_average_precision": "mAP"}
    more = ["exact", *(words[score] for score in scores), "answered"] if private else []
    table = show.table("setting", "noise", "epsilon", *more, numbers=range(1, 7))
    for row in rows:
        cells = [f"{row['sigma']:g}", show.figure(row["public_epsilon"])]
        if private:
            cells += [show.figure(row["exact_epsilon"]), *(f"{row[score]:.3f}" for score in scores)]
            cells.append(f"{row['answered']:.0%}")
        table.add_row(_setting(row, rows), *cells)
    console = show.console()
    console.print()
    console.print(show.private_panel(table) if private else show.indented(table))
    console.print(show.note("epsilon is the price of all queries, whatever the votes are."))
    console.print(show.note("to choose the best row is a release that nobody paid for."))
    drawn = "Accuracy over epsilon" if one_class else "F1 and mAP over epsilon"
    console.print(f"{drawn}, private: {page}", markup=False, soft_wrap=True)


def _setting(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Say how a row differs from others, but for its noise."""
    said = [row["kind"] + (f" {row['share']:g}" if row["kind"] == "gnthreshold" else "")]
    if row["confident_share"] is not None:
        said.append(f"check {row['confident_share']:g}:{row['sigma_gate']:g}")
    for name, word in (("n_teachers", "teachers"), ("n_samples", "queries")):
        if len({other[name] for other in rows}) > 1:
            said.append(f"{row[name]} {word}")
    return ", ".join(said)


def _checks(text: str) -> list[tuple[float, float] | None]:
    found: list[tuple[float, float] | None] = []
    for part in text.split(","):
        share, _, gate = part.partition(":")
        try:
            found.append(None if part.strip() == "none" else (float(share), float(gate)))
        except ValueError:
            raise ValueError(f"Expected none, or checks such as 0.6:0.5, got {part!r}.") from None
    return found
