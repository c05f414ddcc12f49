"""Settings of a small run, for every test that needs a whole one: a test changes what it is about."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from tellers import Accountant, Budget, SqliteLedger
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    PersonalConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    run,
    with_absolute_paths,
    write_config,
)
from tellers.runs.pipeline import run_steps

SMALL = RunConfig(
    data=DataConfig(name="breast_cancer", n_public=60, n_test=60),
    partition=PartitionConfig(n_teachers=20),
    teachers=TeachersConfig(model="naive_bayes", n_jobs=1),
    mechanism=MechanismConfig(name="gnmax", sigma=5.0),
    budget=BudgetConfig(epsilon=30.0, delta=1e-4),
    queries=QueriesConfig(n_queries=20),
    student=StudentConfig(model="naive_bayes"),
)
LABELS = replace(
    SMALL,
    data=DataConfig(name="made_multilabel", n_public=40, n_test=60, options={"n_rows": 700}),
    labels=LabelsConfig(names=("rain", "wind", "snow")),
    mechanism=MechanismConfig(name="binary", sigma=4.0),
    budget=BudgetConfig(epsilon=60.0, delta=1e-4),
    queries=QueriesConfig(n_queries=12),
)


def two_groups(low, high, *, variant="weighting", **options):
    """Return the settings of two groups of equal size, by their budgets."""
    levels, shares = {"low": low, "high": high}, {"low": 0.5, "high": 0.5}
    return PersonalConfig(**{"variant": variant, "levels": levels, "shares": shares, **options})


def books(folder, config):
    """Return the entries and the accounts of the ledger in the folder of a run."""
    budget = Budget(config.budget.epsilon, config.budget.delta)
    with SqliteLedger(folder / "ledger.db", Accountant(budget)) as ledger:
        return ledger.entries(), ledger.accounts()


_VOTED = {}


def run_on_votes(config, folder, **how):
    """Do a run in a new folder with the votes of teachers that an earlier one trained.

    For tests of what comes after the votes: training is most of a small run. Teachers are those of the same
    data, parts and seed.
    """
    asks_test = config.report.private
    made_of = (config.data, config.labels, config.partition, config.teachers, config.personal, config.seed)
    name = repr((*made_of, asks_test))
    if name not in _VOTED:
        _VOTED[name] = Path(tempfile.mkdtemp(prefix="tellers-votes-")) / "run"
        budget = replace(config.budget, ledger=BudgetConfig().ledger)
        run_steps(replace(config, budget=budget), _VOTED[name], until="votes")
    folder.mkdir(parents=True)
    shutil.copytree(_VOTED[name] / "private", folder / "private", ignore=shutil.ignore_patterns("teachers"))
    (folder / "config.toml").write_text(write_config(with_absolute_paths(config)))
    return run(config, folder, resume=True, **how)
