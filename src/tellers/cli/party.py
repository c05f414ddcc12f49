"""`tellers party`: certificates, settings, queries and prices of confidential rounds."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import RoundAborted
from . import options
from .options import option

if TYPE_CHECKING:
    from ..parties._certificates import Card
    from ..parties._process import PartyProcess
    from ..parties.prices import SessionPrice


Folder = Annotated[Path, options.argument("FOLDER", "Where certificates are, a folder for each party.")]
Config = Annotated[Path, option("The settings of this party, in TOML.", metavar="FILE")]
_PARTY = (
    "asker:NAME, answerer:NAME or guardian:NAME; once for each party. answerer:NAME:0,2,3 for one that knows "
    "some of many labels."
)
_LOST = "Ask again, and pay again, for rows whose labels were lost."


# --- `tellers party price`: what queries cost, and what they would cost if guardian and asker colluded. ---


def price(
    config: Config = Path("party.toml"),
    queries: Annotated[int | None, option("Queries in a batch; without it, the most.", min=1)] = None,
    epsilon: Annotated[float | None, option("A budget. Without it: that of the party's books.")] = None,
    delta: Annotated[float | None, option("Its delta. Without it: that of the books.")] = None,
    as_json: options.Json = False,
) -> None:
    """Say what queries of a session cost before anybody asks; nothing is charged and nobody is called.

    The first lines are what the books will hold: prices do not depend on votes. The table is what hardening
    is worth: the epsilon towards a guardian and an asker who tell each other all they know, alone and with
    as many answering parties as n_colluding says. That is on no books.

    Example: tellers party price --config ann/party.toml --queries 100 --epsilon 10
    """
    from ..parties.prices import session_price
    from ..runs.settings.party import read_party

    settings = read_party(config)
    n_queries = queries or (1 if settings.mechanism.is_sum else settings.session.max_queries)
    said = session_price(settings, n_queries=n_queries, epsilon=epsilon, delta=delta)
    notes = remarks(said, pairwise=settings.hardening.pairwise, sigma=settings.hardening.noise_sigma)
    if as_json:
        print(json.dumps(_told_price(said, notes), indent=2))
    else:
        _show(said, notes)


def remarks(price: "SessionPrice", *, pairwise: bool, sigma: float | None) -> list[str]:
    """Return what remains, in words."""
    notes = []
    if sigma is None:
        seen = "the exact tally of every query" if pairwise else "every party's vote on every query"
        notes.append(
            f"Nobody but the guardian adds noise: with the asker it learns {seen}, and no epsilon bounds "
            "that. Agree on noise_sigma in [hardening] to leave noise that neither knows."
        )
    elif not pairwise:
        notes.append(
            "Masks do not cancel: each vote is below its own party's noise alone. Set pairwise = true."
        )
    notes.append(
        "What remains: parties that deviate from the program; whoever colludes with more answering parties "
        "than n_colluding; labels themselves, of which an asker may train a copy."
    )
    if price.n_affordable == 0:
        notes.insert(0, "The budget does not pay for a single query: agree on more noise or a larger budget.")
    return notes


def _told_price(price: "SessionPrice", notes: list[str]) -> dict[str, Any]:
    told = asdict(price)
    for one in told["collusions"]:
        for name in ("batch", "whole"):
            # JSON has no infinity: null stands for no bound, and the field beside says which it is.
            one[f"{name}_is_bounded"] = one[name] is not None and math.isfinite(one[name])
            one[name] = one[name] if one[f"{name}_is_bounded"] else None
    return told | {"notes": notes}


def _show(price: "SessionPrice", notes: list[str]) -> None:
    from . import show

    console = show.console()
    n, budget = price.n_queries, price.budget
    batch = f"A batch of {n} {'query' if n == 1 else 'queries'} costs epsilon {show.figure(price.batch)}"
    paid = "" if price.of_labels is None else f", for {price.of_labels} labels: nobody it is for knows more"
    console.print(f"{batch} at delta {price.delta:g}{paid}.")
    if budget is not None:
        console.print(f"A budget of epsilon {budget.epsilon:g} pays for {price.n_affordable} queries in all.")
    heads = ["guardian and asker collude", "they see", f"epsilon of {n}"]
    rows = show.table(*heads, *(["of the whole budget"] if budget else []), numbers=(2, 3))
    for one in price.collusions:
        many = "ies" if one.n_colluding > 1 else "y"
        who = f"with {one.n_colluding} answering part{many}" if one.n_colluding else "alone"
        whole = [] if budget is None else ["-" if one.whole is None else show.figure(one.whole)]
        rows.add_row(who, one.sees, show.figure(one.batch), *whole)
    console.print(rows)
    for words in notes:
        console.print(show.note(words))


# --- `tellers party`: certificates and settings of parties whose votes nobody sees. ---


HELP = """Confidential queries between organisations: certificates, settings, and the parties themselves.

An asker has rows, answerers have models, and a guardian adds the noise and keeps the books. Nobody sees
another's rows, models or votes; the asker alone sees the label.
"""


def certs(
    folder: Folder,
    party: Annotated[list[str], option(_PARTY, metavar="ROLE:NAME[:LABELS]", show_default=False)],
    days: Annotated[int, option("How long they are valid.", min=1)] = 365,
    renew: Annotated[bool, option("The next certificates of parties that are there.", "--renew")] = False,
    as_json: options.Json = False,
) -> None:
    """Make certificates and keys, and print what the others must know: pins and mask keys.

    The folder gets an authority, and a folder for each party that is handed to it and to nobody else. Whoever
    runs this for all parties holds all their keys: good for trying it out. In earnest every party runs it for
    itself alone and sends the others its lines and its authority.pem; they compare the pin by a second way.

    With --renew a party that is there gets its next certificate, into FOLDER/NAME-XXXXXXXX, with the old mask
    key. The others write its line, next_pin, beside the pin that they have and restart; only then the party
    changes `certificates` in its settings and restarts. At last they make the new pin their `pin`.

    Example: tellers party certs certs --party asker:ann --party guardian:guard --party answerer:north
    """
    from ..parties._certificates import make_certificate

    wanted = [_role_and_name(text) for text in party]
    taken = [name for _, name, _ in wanted if (folder / name).exists()]
    if taken and not renew:
        raise ValueError(
            f"Expected new parties, {folder / taken[0]} is there. Nothing was written; choose another folder."
        )
    cards = [
        make_certificate(folder, name, role=role, days=days, labels=own, renews=renew)
        for role, name, own in wanted
    ]
    if as_json:
        told = [asdict(card) | {"expires": card.expires.isoformat()} for card in cards]
        print(json.dumps({"folder": str(folder), "parties": told}, indent=2))
        return
    print(_lines(cards, pin="next_pin" if renew else "pin"))
    from . import show

    places = ", ".join(str(folder / card.folder) for card in cards) if renew else f"{folder}/NAME"
    show.console(stderr=True).print(
        f"Keys are in {places}, for their owners alone; they are valid until "
        f"{min(card.expires for card in cards):%Y-%m-%d}. Compare pins by a second way."
    )


def init(
    folder: Folder,
    n_features: Annotated[int, option("How many numbers a row has.", "--features", min=1)],
    n_classes: Annotated[int | None, option("One of so many classes per row.", "--classes", min=2)] = None,
    n_labels: Annotated[int | None, option("Many labels per row, so many.", "--labels", min=1)] = None,
    sigma: Annotated[float, option("The noise, in votes.", min=0)] = 8.0,
    host: Annotated[str, option("Where all parties listen.")] = "127.0.0.1",
    port: Annotated[int, option("The first port.", min=1, max=65_000)] = 7400,
    force: Annotated[bool, option("Overwrite files that are there.", "--force")] = False,
    as_json: options.Json = False,
) -> None:
    """Write settings for each party of a folder that `tellers party certs` made, with everybody's pins.

    Change addresses, limits and the budget as you need; session, mechanism and hardening must stay the same
    for all, and their hash is compared before anything is asked.

    Example: tellers party init certs --features 64 --classes 10
    """
    from ..runs.settings.mechanism import MechanismConfig
    from ..runs.settings.party import SessionConfig, settings_for, write_party
    from .init import write_settings_file

    if (n_classes is None) == (n_labels is None):
        raise ValueError("Expected --classes or --labels, one of them.")
    every = _cards(folder)
    cards = [card for card in every if card.folder == card.name]
    coming = {card.name: card.pin for card in every if card.folder != card.name}
    if len(coming) + len(cards) != len(every) or not coming.keys() <= {card.name for card in cards}:
        raise ValueError(
            f"Expected of each party one certificate in {folder}/NAME and at most a next one beside it, got "
            "others. Move those aside that are out of use."
        )
    parties = {
        card.name: {
            "role": card.role, "pin": card.pin, "mask_key": card.mask_key,
            "address": f"{host}:{port + number}", "labels": card.labels,
            "next_pin": coming.get(card.name, ""),
        }
        for number, card in enumerate(cards)
    }  # fmt: skip
    n_answerers = sum(card.role == "answerer" for card in cards)
    session = SessionConfig(
        n_features=n_features, n_outputs=n_classes or n_labels or 1, quorum=max(2, n_answerers - 1)
    )
    mechanism = MechanismConfig(name="gnmax" if n_classes else "binary", sigma=sigma)
    texts = {
        folder / card.name / "party.toml": write_party(
            settings_for(card.name, parties, session=session, mechanism=mechanism)
        )
        for card in cards
    }
    taken = [path for path in texts if path.exists()]
    if taken and not force:
        raise ValueError(f"Expected new files, {taken[0]} is there. Nothing was written; add --force.")
    for path, text in texts.items():
        write_settings_file(path, text, force=True)
    if as_json:
        print(json.dumps({"files": [str(path) for path in texts]}, indent=2))
    else:
        print("\n".join(f"Wrote {path}" for path in texts))


def answer(config: Config = Path("party.toml"), as_json: options.Json = False) -> None:
    """Vote, with this party's model, on rows that it never sees; until Ctrl-C or SIGTERM.

    The party listens for askers, stays connected to the guardian, and keeps books of its own: a query that
    they cannot pay for is refused. What happens is told on stderr; nothing private is in it.

    Example: tellers party answer --config north/party.toml
    """
    from ..parties._ports import close_to_others

    close_to_others()
    from ..parties._answer import AnswerRole
    from ..runs.settings.party import read_party

    settings = read_party(config)
    _serve(AnswerRole(settings, say=_say), f"{settings.party.name} answers", as_json=as_json)


def guard(config: Config = Path("party.toml"), as_json: options.Json = False) -> None:
    """Keep the books and add the noise; until Ctrl-C or SIGTERM.

    Every query is on the ledger before its noise is drawn. A guardian that starts again on the same ledger
    has forgotten nothing that was charged, and nobody who is suspended for the day. The log names who broke
    a rule, or ended a query that others had paid for; `tellers ledger list` shows the same as notes.

    Example: tellers party guard --config guard/party.toml
    """
    from ..parties._ports import close_to_others

    close_to_others()
    from ..parties._guard import GuardRole
    from ..runs.settings.party import read_party

    settings = read_party(config)
    _serve(GuardRole(settings, say=_say), f"{settings.party.name} guards", as_json=as_json)


def ask(
    rows: Annotated[Path, option("The rows: .npy, or .csv of numbers alone.", metavar="FILE")],
    out: Annotated[Path, option("Where labels go: .csv or .npz.", metavar="FILE")],
    config: Config = Path("party.toml"),
    batch: Annotated[int | None, option("Queries in one batch; without it, the most.", min=1)] = None,
    delta: Annotated[float, option("At which the price is told.")] = 1e-5,
    again: Annotated[bool, option(_LOST, "--again")] = False,
    as_json: options.Json = False,
) -> None:
    """Have rows labelled by parties that never see them, and say what it cost.

    What fails before it cost anybody is tried again under a new id. What fails afterwards is not: it is on
    the books of parties that lent a mask, or may have been charged; who failed is told. Labels that were paid
    for are written in any case, batch by batch.

    If it is interrupted, run the same command again: it goes on where it stopped, with what FILE.asked beside
    the labels remembers. Rows that may have been charged and have no labels are told, and asked again only
    with --again.

    Example: tellers party ask --config ann/party.toml --rows rows.csv --out labels.csv
    """
    from ..parties._ports import close_to_others

    close_to_others()
    from ..runs.settings.party import read_party
    from .party_ask import ask_in_batches, read_rows, require_place

    settings = read_party(config)
    given = read_rows(rows)
    require_place(out)
    size = min(batch or settings.session.max_queries, settings.session.max_queries)
    told = ask_in_batches(
        settings, given, out, batch=size, delta=delta, say=_say, again=again, watched=not as_json
    )
    if as_json:
        print(json.dumps(told, indent=2))
    else:
        print(
            f"Wrote {told['n_labelled']} of {told['n_rows']} rows to {out}. The answering parties' data was "
            f"charged epsilon {told['epsilon']:.3g} at delta {delta:g}{_with_lost(told)}."
        )
    if told["error"]:
        raise RoundAborted(
            f"{told['n_labelled']} of {told['n_rows']} rows have labels. {told['error']} To go on, run the "
            "same command again."
        )


def pool(
    rows: Annotated[Path, option("Public rows: .npy, or .csv of numbers alone.", metavar="FILE")],
    out: Annotated[Path, option("Where the pool goes: .npz, for all parties.", metavar="FILE")],
    directions: Annotated[int, option("On how many directions sums are told, at most.", min=1)] = 50,
    as_json: options.Json = False,
) -> None:
    """Write the public pool of a Gaussian sum: rows, their scale, and the directions on which sums are told.

    One party does so and hands the file on; all write its digest into [pool], which their terms hold.

    Example: tellers party pool --rows public.npy --out pool.npz
    """
    from ..parties._sums import write_pool
    from ..parties.collaboration.sums import ScoredPool
    from .party_ask import read_rows

    made = ScoredPool.of(read_rows(rows), 1, directions)
    n_directions = made.directions.shape[1]
    told = {"path": out.name, "digest": write_pool(out, made), "n_directions": n_directions}
    if as_json:
        print(json.dumps(told))
        return
    print(f"Wrote {out}. For party.toml of all parties:\n\n[pool]")
    print("\n".join(f"{name} = {json.dumps(value)}" for name, value in told.items()))


def ask_sum(
    out: Annotated[Path, option("Where the sum goes: .npz.", metavar="FILE")],
    config: Config = Path("party.toml"),
    delta: Annotated[float, option("At which the price is told.")] = 1e-5,
) -> None:
    """Have the answering parties score the agreed pool, and write their one noisy sum.

    FILE has `values` (rows of the pool x labels) and `sums` (directions x labels) in steps, with `sigma` and
    `steps` of the noise and the number of parties. What may have been charged is not tried again.

    Example: tellers party sum --config ann/party.toml --out sum.npz
    """
    import io

    import numpy as np

    from ..parties.ask import AskRole
    from ..privacy._files import write_whole
    from ..runs.settings.party import read_party
    from .party_ask import require_place

    require_place(out)
    with AskRole(read_party(config), say=_say) as asker:
        told, price = asker.ask_pool(), asker.price(1).epsilon(delta)
    content, level = io.BytesIO(), told.release.noise_level
    assert level is not None
    np.savez(
        content, values=np.asarray(told.release.values), sums=told.sums, sigma=level.sigma, steps=level.steps,
        n_parties=len(told.parties),
    )  # fmt: skip
    write_whole(out, content.getvalue())
    print(
        f"Wrote the noisy sum of {len(told.parties)} parties to {out}. Their data was charged epsilon ",
        end="",
    )
    print(f"{price:.3g} at delta {delta:g}.")


COMMANDS = {
    "certs": certs, "init": init, "price": price, "guard": guard, "answer": answer, "ask": ask, "pool": pool,
    "sum": ask_sum,
}  # fmt: skip


def _serve(role: "PartyProcess", what: str, *, as_json: bool) -> None:

    def ready(address: str) -> None:
        told = {"serving": what, "address": address}
        print(json.dumps(told) if as_json else f"{what} at {address}.", flush=True)

    role.run(ready)


def _with_lost(told: dict[str, Any]) -> str:
    """Return what the price may be if queries without labels were charged too."""
    most = told["epsilon_at_most"]
    return "" if most <= told["epsilon"] else f", or {most:.3g} if what was lost was charged too"


def _say(words: str) -> None:
    from . import show

    show.console(stderr=True).print(words, markup=False, highlight=False)


def _role_and_name(text: str) -> tuple[str, str, tuple[int, ...]]:
    from ..parties._certificates import require_claim, require_name
    from ..parties._messages import ROLES

    role, found, rest = text.partition(":")
    name, _, labels = rest.partition(":")
    if not found or role not in ROLES:
        raise ValueError(f"Expected --party ROLE:NAME with a role of {', '.join(ROLES)}, got {text!r}.")
    require_name(name)
    numbers = labels.split(",") if labels else []
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise ValueError(f"Expected labels as whole numbers such as 0,2,3 after the name, got {text!r}.")
    own = tuple(int(number) for number in numbers)
    require_claim(own, role=role)
    return role, name, own


def _cards(folder: Path) -> "list[Card]":
    from ..parties._certificates import CERTIFICATE, read_card

    homes = sorted(path.parent for path in folder.glob(f"*/{CERTIFICATE}"))
    if not homes:
        raise ValueError(
            f"Expected certificates of parties in {folder}, found none. Make them with: tellers party certs"
        )
    return [read_card(home) for home in homes]


def _lines(cards: "list[Card]", *, pin: str) -> str:
    """Return what others write into their settings, as TOML."""
    shown = []
    for card in cards:
        lines = ["[[peer]]", f'name = "{card.name}"', f'role = "{card.role}"', f'{pin} = "{card.pin}"']
        if card.role == "answerer":
            lines.append(f'mask_key = "{card.mask_key}"')
        if card.labels:
            lines.append(f"labels = {list(card.labels)}")
        shown.append("\n".join(lines))
    return "\n\n".join(shown)
