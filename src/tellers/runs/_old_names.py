"""Modules by the names they had before version 0.2: each leads to where its names are now, and warns.

Documentation and stored models name these modules. An alias stays for at least two minor versions.
"""

import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Modules that kept their own name, by the package that they went into.
_MOVED = {
    "accounting": "audit exact smooth",
    "accounting.audit": "audit.pairs",
    "data": "audio.clips datasets.images label_models metrics",
    "data.sound": "audio.decoding audio.generator audio.layouts audio.logmel",
    "mechanisms": "divergence sensitivity",
    "nn": "audio.tagger devices students.torch.views teachers.torch.classifier weights",
    "parties": "collaboration",
    "parties.collaboration": "collaboration.learning collaboration.members",
    "privacy": "budget noise rdp relation release sealed votes",
    "runs": "dependencies labelling personal pipeline.publishing repricing",
    "runs.personal": "personal.accounting personal.plan personal.publishing personal.rounds",
    "service": "client",
}
# Old name -> the modules that have its names now, in the order in which they are asked.
OLD_NAMES = {
    old: f"{home}.{old.rpartition('.')[2]}" for home, every in _MOVED.items() for old in every.split()
} | {
    "admission": "mechanisms._admission",
    "audio": "runs.sound data.sound nn.tagger nn.networks nn.weights",
    "audio.classifier": "nn.tagger",
    "audio.dealing": "runs.sound.splitting",
    "audio.mixtures": "runs.sound.splitting",
    "audio.networks": "nn.networks nn.weights",
    "audio.sweep": "runs.sweeps",
    "audio.sweep_report": "runs.report.sweep",
    "audit.candidates": "accounting.audit.pairs",
    "audit.law": "accounting.audit.evidence",
    "ballot_sums": "accounting.exact",
    "bounds": "mechanisms.published",
    "calibrate": "accounting runs",
    "card": "runs",
    "catalogue": "runs._catalogue",
    "collaboration.asking": "parties.collaboration.learning",
    "collaboration.material": "parties.collaboration.members",
    "collaboration.summary": "parties.collaboration.learning",
    "config": "runs runs.settings",
    "copies": "data.dataset",
    "curves": "data.metrics",
    "datasets": "data data.named",
    "datasets.directory": "data._directory",
    "door": "runs.room",
    "envelope": "mechanisms.gap_bounds",
    "estimator": "runs",
    "file_sizes": "privacy._files",
    "gaussian_dp": "accounting.costs",
    "label_alternatives": "accounting._label_exact",
    "label_bounds": "mechanisms.labels._published",
    "label_costs": "accounting._label_exact",
    "label_envelope": "mechanisms.labels._perlabel",
    "label_votes": "privacy.votes",
    "ledger.groups": "ledger.base",
    "parties.noise_shares": "parties.prices",
    "personal.record": "runs.personal.assignment",
    "personal.running": "runs.personal.accounting",
    "pipeline": "runs runs.pipeline",
    "pipeline.shadows": "runs._shadows",
    "public_costs": "accounting.costs",
    "publication": "accounting.smooth",
    "publishable": "accounting._publishable accounting.costs",
    "quotients": "mechanisms._log_sum_sensitivity",
    "report": "runs",
    "rows": "privacy._rows",
    "students.torch.multilabel": "students.torch.mixmatch",
    "teachers.fallback": "teachers.ballots",
    "teachers.partition": "teachers.partitions",
    "teachers.torch.label_classifier": "nn.classifier",
    "upset": "mechanisms._flip_probability",
}

# Stored models name their classes by these. They are read for ever: these names stay, and do not warn.
STORED = (
    "audio", "audio.classifier", "audio.tagger", "label_models", "students.torch.multilabel",
    "teachers.fallback", "teachers.torch.classifier", "teachers.torch.label_classifier",
)  # fmt: skip


class OldModule(ModuleType):
    """A module by its old name; its names are looked up where they are now."""

    __path__ = []  # noqa: RUF012 - a package, so that modules in it are looked for

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for home in OLD_NAMES[self.__name__.removeprefix("tellers.")].split():
                module = import_module(f"tellers.{home}")
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function that has the name its module had: `tellers.teachers.partition` is both."""
        return getattr(self, self.__name__.rpartition(".")[2])(*given, **named)


class OldNames:
    """Loads a module by its old name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that leads on, and say where its names are now."""
        old = spec.name.removeprefix("tellers.")
        if old not in STORED:
            homes = " and ".join(f"tellers.{home}" for home in OLD_NAMES[old].split())
            words = f"{spec.name} is now {homes}. The old name is removed in version 0.4."
            warnings.warn(words, DeprecationWarning, stacklevel=2)
        return OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has no code of its own."""


def find_old(name: str) -> ModuleSpec | None:
    """Return how to load a module by its old name, or None."""
    if name.removeprefix("tellers.") not in OLD_NAMES:
        return None
    return ModuleSpec(name, OldNames(), is_package=True)  # type: ignore[arg-type]
