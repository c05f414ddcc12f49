"""Tables in the form of the paper's table 1: before and after, counted in both ways."""

from dataclasses import dataclass

from common.measure import Measure, Section, measure

from tellers.parties.collaboration.learning import Collaboration, summary

NAMES = {"accuracy": "ACC", "bac": "BAC", "auc": "AUC", "map": "mAP"}
WAYS = {"": "", "sound": "sound: all askers, any votes", "published": "as published: per asker, by the votes"}
# Table 1 of the paper: BAC, AUC and mAP before, and after at epsilon 10 and 20.
PASCAL = {
    ("", 0.0): {"accuracy": 0.93, "bac": 0.59, "auc": 0.88, "map": 0.54},
    ("published", 10.0): {"accuracy": 0.94, "bac": 0.62, "auc": 0.88, "map": 0.54},
    ("published", 20.0): {"accuracy": 0.94, "bac": 0.64, "auc": 0.89, "map": 0.55},
}
# Appendix I.10, the three weakest: before, and after (its epsilon is not said; CheXpert's is 20 elsewhere).
WEAKEST = {
    ("", 0.0): {"bac": 0.63, "auc": 0.70, "map": 0.53},
    ("published", 20.0): {"bac": 0.68, "auc": 0.75, "map": 0.58},
}


@dataclass(frozen=True)
class Table:
    """Repetitions of one collaboration, and what the paper has in its place."""

    key: str
    title: str
    repetitions: tuple[Collaboration, ...]
    theirs: dict[tuple[str, float], dict[str, float]]
    where: str = ""
    notes: tuple[str, ...] = ()

    def section(self) -> Section:
        """Return every number under a key of its own."""
        found: list[Measure] = []
        for line in summary(self.repetitions):
            state = f"{line.counting}/{line.epsilon:g}" if line.counting else "before"
            words = f"{WAYS[line.counting]}, epsilon {line.epsilon:g}" if line.counting else "before"
            theirs = self.theirs.get((line.counting, line.epsilon), {})
            runs = self.repetitions
            for name in line.scores:
                values = [
                    (run.mean_after(line.counting, line.epsilon) if line.counting else run.mean_before())[
                        name
                    ]
                    for run in runs
                ]
                where = self.where if name in theirs else ""
                published = 100 * theirs[name] if name in theirs else None
                found.append(
                    measure(
                        f"{self.key}/{state}/{name}", f"{words}: {NAMES.get(name, name)}", values,
                        published=published, where=where, percent=True,
                    )
                )  # fmt: skip
            if line.counting:
                for name, value in _costs(self.repetitions, line.counting, line.epsilon).items():
                    found.append(measure(f"{self.key}/{state}/{name}", f"{words}: {name}", value))
        return Section(self.title, tuple(found), self.notes)

    def markdown(self) -> str:
        """Return the table as a page of the documentation has it."""
        lines = summary(self.repetitions)
        scores = list(lines[0].scores)
        heads = [NAMES.get(name, name) for name in scores]
        text = [f"**{self.title}**", "", f"| | questions | labels right | {' | '.join(heads)} | "]
        text[-1] += "epsilon as published | public, this asker | **public, a party** |"
        text.append("|" + "---|" * (len(heads) + 6))
        for line in lines:
            cells = [f"{100 * mean:.1f} ± {100 * error:.1f}" for mean, error in line.scores.values()]
            if line.counting:
                costs = _costs(self.repetitions, line.counting, line.epsilon)
                first = (
                    f"epsilon {line.epsilon:g}, {'as published' if line.counting == 'published' else 'sound'}"
                )
                start = [first, f"{line.n_queries:.0f}", f"{100 * line.labels_right:.0f} %"]
                cells += [f"{costs[name]:.1f}" for name in ("published", "per asker")]
                cells += [f"**{costs['party']:.1f}**"]
            else:
                start, cells = ["before", "", ""], [*cells, "", "", ""]
            text.append("| " + " | ".join([*start, *cells]) + " |")
        return "\n".join([*text, "", *(f"- {note}" for note in self.notes), ""])


def _costs(repetitions: tuple[Collaboration, ...], counting: str, epsilon: float) -> dict[str, float]:
    turns = [turn for run in repetitions for turn in run.turns_of(counting, epsilon)]
    return {
        "questions": sum(turn.n_queries for turn in turns) / len(turns),
        "published": max(turn.published for turn in turns),
        "per asker": max(turn.per_asker for turn in turns),
        "party": max(turn.party for turn in turns),
    }


Ways = dict[str, tuple[list[dict[str, float]], float, float]]
GAINS = ("bac", "auc", "map")


@dataclass(frozen=True)
class AgainstAlone:
    """Every asker against itself alone, way by way: scores of each asker, seed by seed."""

    key: str
    title: str
    seeds: tuple[Ways, ...]

    def section(self) -> Section:
        """Return every number under a key of its own."""
        found: list[Measure] = []
        for way in self.seeds[0]:
            for name in GAINS:
                values, gains, _ = self._gained(way, name)
                at = f"{self.key}/{way}/{name}"
                found.append(measure(at, f"{way}: {NAMES[name]}", values, percent=True))
                if way != "alone":
                    words = f"{way}: {NAMES[name]} above alone"
                    found.append(measure(f"{at} gain", words, gains, percent=True))
            party = self._party(way)
            if party:
                found.append(measure(f"{self.key}/{way}/party", f"{way}: a party's epsilon", party))
        return Section(self.title, tuple(found))

    def markdown(self) -> str:
        """Return the table as a page of the documentation has it."""
        heads = " | ".join(f"{NAMES[name]} | above alone | askers better" for name in GAINS)
        text = [f"**{self.title}**", "", f"| | questions | {heads} | **public, a party** |"]
        text.append("|" + "---|" * (3 * len(GAINS) + 3))
        for way in self.seeds[0]:
            asked = sum(seed[way][1] for seed in self.seeds) / len(self.seeds)
            cells = [way, f"{asked:.0f}" if asked else ""]
            for name in GAINS:
                values, gains, better = self._gained(way, name)
                it = measure("", "", gains)
                cells.append(f"{100 * sum(values) / len(values):.1f}")
                shown = f"{100 * it.mean:+.1f} ± {100 * it.error:.1f}"
                n_askers = sum(len(seed[way][0]) for seed in self.seeds)
                cells += ["", ""] if way == "alone" else [shown, f"{better:.0f} of {n_askers}"]
            party = self._party(way)
            text.append("| " + " | ".join([*cells, f"**{party:.1f}**" if party else ""]) + " |")
        return "\n".join([*text, ""])

    def _gained(self, way: str, name: str) -> tuple[list[float], list[float], float]:
        """Return means and mean gains of the askers, seed by seed, and how many askers gained."""
        values, gains, better = [], [], 0
        for seed in self.seeds:
            both = zip(seed[way][0], seed["alone"][0], strict=True)
            pairs = [(now[name], then[name]) for now, then in both]
            values.append(sum(now for now, _ in pairs) / len(pairs))
            gains.append(sum(now - then for now, then in pairs) / len(pairs))
            better += sum(now > then for now, then in pairs)
        return values, gains, float(better)

    def _party(self, way: str) -> float:
        return max(seed[way][2] for seed in self.seeds)
