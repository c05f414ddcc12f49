"""Kill clients, services and databases under load, cut the power, and see whether the ledger still holds.

    python scripts/chaos --backend sqlite --kills 500 --power-losses 50 --seed 7
    python scripts/chaos --backend postgresql --seconds 180

Exits with 1 if anything is wrong, and keeps what it found in a folder.
"""

import argparse
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from powerloss import NoShim, Shim

_SHOWN = 20


def main(shim: Shim | None) -> int:
    # Not above: this program begins twice, and what it needs takes a second.
    from breaking import WAYS
    from campaign import Campaign, Plan
    from faults import FAULTS

    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "postgresql"), required=True)
    parser.add_argument("--kills", type=int, default=0, help="stop after so many kills")
    parser.add_argument("--power-losses", type=int, default=0, help="and after so many power cuts")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so many seconds")
    parser.add_argument("--seed", type=int, default=None, help="of what is done when; random, and printed")
    parser.add_argument("--askers", type=int, default=16)
    parser.add_argument("--by-service", type=int, default=8, help="how many of them ask by HTTP")
    parser.add_argument(
        "--questions", type=int, default=500, help="what the budget of a round pays for, about"
    )
    parser.add_argument("--check-every", type=int, default=10, help="faults between looks at the ledger")
    parser.add_argument("--pause", type=float, default=0.25, help="mean seconds between faults")
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS), help="these alone")
    parser.add_argument("--groups", choices=("every other", "always", "never"), default="every other",
                        help="in which rounds groups of people have budgets of their own")  # fmt: skip
    parser.add_argument(
        "--evidence", type=Path, default=Path("chaos-evidence"), help="where findings are kept"
    )
    parser.add_argument("--broken", choices=sorted(WAYS), default="", help="break the ledger: must be found")
    given = parser.parse_args()
    if not (given.kills or given.power_losses or given.seconds):
        parser.error("Expected --kills, --power-losses or --seconds.")
    if shim is None and given.power_losses:
        parser.error("Expected a C compiler for power losses, got none. Install gcc.")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="tellers-chaos-"))
    plan = Plan(
        given.backend, seed, folder, kills=given.kills, power_losses=given.power_losses,
        seconds=given.seconds, n_askers=given.askers, n_by_service=given.by_service,
        n_questions=given.questions, pause=given.pause, check_every=given.check_every,
        broken=given.broken, faults=tuple(given.faults), groups=given.groups,
    )  # fmt: skip
    who = f"{plan.n_askers} askers, {plan.n_by_service} of them by HTTP"
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    print(f"chaos on {plan.backend}: seed {seed}, {who}", flush=True)
    campaign = Campaign(plan, shim)
    campaign.run()
    report(campaign)
    if campaign.violations:
        (folder / "violations.txt").write_text("\n".join(campaign.violations) + "\n")
        evidence = given.evidence / f"{plan.backend}-{seed}"
        shutil.rmtree(evidence, ignore_errors=True)
        shutil.copytree(folder, evidence)
        shutil.rmtree(folder)
        print(f"The evidence is in {evidence}.")
        return 1
    shutil.rmtree(folder)
    return 0


def on_shim() -> Shim | None:
    """Run this program again on the library between it and its files; None where there is none."""
    place = os.environ.pop("CHAOS_SHIM", None)
    if place:
        return Shim(Path(place))
    folder = Path(tempfile.mkdtemp(prefix="tellers-chaos-shim-"))
    folder.chmod(0o755)  # a database server is another user
    try:
        shim = Shim.build(folder / "shim")
    except NoShim as missing:
        shutil.rmtree(folder)
        if os.environ.get("TELLERS_REQUIRE_COMPILER"):
            raise SystemExit(f"NOTHING WAS TRIED: {missing}") from None
        print(f"NO POWER LOSSES, no wrong clocks and no full disks: {missing}", file=sys.stderr, flush=True)
        return None
    ours = {**os.environ, **shim.environment(), "CHAOS_SHIM": str(shim.folder)}
    return os.execve(sys.executable, [sys.executable, *sys.argv], ours)


def report(campaign: Any) -> None:
    faults = campaign.faults
    kinds = ", ".join(f"{n} {kind}" for kind, n in faults.done.most_common())
    print(f"  seed {campaign.plan.seed}: {faults.n_kills} kills among {faults.done.total()} faults ({kinds})")
    if faults.lost:
        lost = faults.lost
        print(f"  of {lost['writes']} writes that no flush had reached, {lost['kept']} sectors survived")
    print(f"  {campaign.took:.0f} s on {os.cpu_count()} cores, {campaign.n_rounds} rounds, "
          f"the ledger judged {campaign.n_looks} times")  # fmt: skip
    for what, n in campaign.counts.items():
        print(f"  {n:6d} {what}")
    print(f"  longest wait for an answer: {campaign.longest:.2f} s")
    for who, n in campaign.n_ended.items():
        print(f"  {n:6d} times a {who} ended by itself")
    for what, n in campaign.trouble.most_common(_SHOWN):
        print(f"  {n:6d} x {what}")
    for words in campaign.violations[:_SHOWN]:
        print(f"VIOLATION {words}")
    if len(campaign.violations) > _SHOWN:
        print(f"... and {len(campaign.violations) - _SHOWN} more")
    print("FOUND A VIOLATION" if campaign.violations else "all of it holds", flush=True)


if __name__ == "__main__":
    shim = on_shim()
    try:
        code = main(shim)
    finally:
        if shim is not None:
            shutil.rmtree(shim.folder.parent, ignore_errors=True)
    sys.exit(code)
