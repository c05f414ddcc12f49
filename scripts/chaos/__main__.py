"""Kill clients, services and databases under load, and see whether the books still hold.

    python scripts/chaos --backend sqlite --kills 500 --seed 7
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

from breaking import WAYS
from campaign import Campaign, Plan

_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "postgresql"), required=True)
    parser.add_argument("--kills", type=int, default=0, help="stop after so many kills")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so many seconds")
    parser.add_argument("--seed", type=int, default=None, help="of what is killed when; random, and printed")
    parser.add_argument("--askers", type=int, default=16)
    parser.add_argument("--by-service", type=int, default=8, help="how many of them ask a service over HTTP")
    parser.add_argument(
        "--questions", type=int, default=400, help="what the budget of a round pays for, about"
    )
    parser.add_argument("--check-every", type=int, default=10, help="kills between looks at the books")
    parser.add_argument("--pause", type=float, default=0.25, help="mean seconds between kills")
    parser.add_argument(
        "--evidence", type=Path, default=Path("chaos-evidence"), help="where findings are kept"
    )
    parser.add_argument("--broken", choices=sorted(WAYS), default="", help="break the ledger: must be found")
    given = parser.parse_args()
    if not given.kills and not given.seconds:
        parser.error("Expected --kills or --seconds.")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="tellers-chaos-"))
    plan = Plan(
        given.backend, seed, folder, kills=given.kills, seconds=given.seconds, n_askers=given.askers,
        n_by_service=given.by_service, n_questions=given.questions, pause=given.pause,
        check_every=given.check_every, broken=given.broken,
    )  # fmt: skip
    who = f"{plan.n_askers} askers, {plan.n_by_service} of them by HTTP"
    print(f"chaos on {plan.backend}: seed {seed}, {who}", flush=True)
    campaign = Campaign(plan)
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


def report(campaign: Campaign) -> None:
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(campaign.kills.items()))
    print(f"  seed {campaign.plan.seed}: {sum(campaign.kills.values())} kills ({kinds})")
    print(f"  {campaign.took:.0f} s on {os.cpu_count()} cores, {campaign.n_rounds} rounds, "
          f"the books judged {campaign.n_looks} times")  # fmt: skip
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
    sys.exit(main())
