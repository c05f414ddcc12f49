"""A session of real processes with models of any kind, whose parties may keep all that they receive."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier

from tellers.parties._policy import PartyContext
from tellers.runs import write_party
from tellers.runs.settings.party import HardeningConfig, PartyLimitsConfig
from tellers.teachers.models import dump_model, load_model

from . import recording_party
from .near_ties import near_ties
from .process_network import ProcessNetwork, begin

HIDDEN, N_TREES, DEPTH = (8,), 3, 3


def random_model(kind, task, n_outputs, X, rng):
    """Fit an estimator to labels that are half chance, so that models differ and votes are divided."""
    scores = X @ rng.normal(size=(X.shape[1], n_outputs)) + rng.normal(size=(len(X), n_outputs))
    y = scores.argmax(axis=1) if task == "single" else (scores > 0).astype(int)
    y[:n_outputs] = np.arange(n_outputs) if task == "single" else np.eye(n_outputs, dtype=int)
    seed = int(rng.integers(2**31))
    if kind == "network":
        return MLPClassifier(HIDDEN, max_iter=400, tol=1e-2, random_state=seed).fit(X, y)
    if kind == "forest":
        return RandomForestClassifier(N_TREES, max_depth=DEPTH, random_state=seed).fit(X, y)
    linear = LogisticRegression()
    return (linear if task == "single" else OneVsRestClassifier(linear)).fit(X, y)


class ModelNetwork(ProcessNetwork):
    """A network whose models are of a kind; with `watched`, each party keeps its view in `views/NAME`."""

    def __init__(self, folder, *, kind="linear", task="single", n_features=6, n_outputs=4, n_answerers=5,
                 max_queries=100, noise_sigma=None, pairwise=True, watched=False, seed=3):  # fmt: skip
        super().__init__(
            folder,
            n_answerers=n_answerers,
            n_labels=4 if task == "multi" else None,
            patience=300.0,
            quorum=max(2, n_answerers - 1),
        )
        self.watched, self.n_features, self.rng = watched, n_features, np.random.default_rng(seed)
        shape = {"network": {"hidden": HIDDEN}, "forest": {"n_trees": N_TREES, "depth": DEPTH}}.get(kind, {})
        for name in ("ann", "guard", *self.names):
            old = self.settings(name)
            session = replace(
                old.session, n_features=n_features, n_outputs=n_outputs, kind=kind, max_queries=max_queries,
                **shape,
            )  # fmt: skip
            changes = {"session": session, "limits": PartyLimitsConfig(queries_per_asker=10**6)}
            changes["hardening"] = HardeningConfig(pairwise=pairwise, noise_sigma=noise_sigma)
            (self.folder / name / "party.toml").write_text(write_party(replace(old, **changes)))
        for name in self.names:
            X = self.rng.normal(size=(120, n_features))
            model = random_model(kind, task, n_outputs, X, self.rng)
            (self.folder / name / "model.skops").write_bytes(dump_model(model))

    def _begin(self, name, step):
        if not self.watched:
            return super()._begin(name, step)
        config, noise = self.folder / name / "party.toml", self.folder / "noise"
        return begin(recording_party.main, self.view(name), config, noise, log=self.folder / f"{name}.log")

    def ask(self, rows, batch):
        """Ask in a process that keeps its view too; return labels, ids of batches and who answered each."""
        np.save(self.folder / "rows.npy", rows)
        out, config = self.folder / "labels.npz", self.folder / "ann" / "party.toml"
        words = (self.view("ann"), config, self.folder / "rows.npy", out, batch)
        done = begin(recording_party.ask, *words, log=self.folder / "ann.log")
        assert done.wait(timeout=1200) == 0, self.log("ann")
        with np.load(out) as found:
            return found["labels"], list(found["qids"]), [tuple(p.split(",")) for p in found["parties"]]

    def view(self, name):
        return self.folder / "views" / name

    def messages(self, name):
        """Return all messages that a party read, as (role of the sender, kind)."""
        lines = (self.view(name) / "messages.jsonl").read_text().splitlines()
        return [(line["role"], line["header"]["kind"]) for line in map(json.loads, lines)]

    def rows(self, n):
        return self.rng.normal(size=(n, self.n_features))

    def estimator(self, name):
        return load_model((self.folder / name / "model.skops").read_bytes())

    def float_votes(self, rows, name, n_outputs):
        """Return what a party's estimator itself says, as votes, and which rows rounding may have turned."""
        context = PartyContext(self.settings(name))
        program = context.vote_program(len(rows))
        said = self.estimator(name).predict(np.clip(rows, -8, 8))
        votes = said if said.ndim == 2 else np.eye(n_outputs, dtype=int)[said]
        return votes, near_ties(program, context.model(), rows)


def read(place):
    """Return the bytes of a file of a view, none if there is no such file."""
    return Path(place).read_bytes() if Path(place).exists() else b""
