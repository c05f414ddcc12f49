"""Modules by the names they had before version 0.2: each leads to where its names are now, and warns.

Documentation and stored models name these modules. An alias stays for at least two minor versions.
"""

import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Old name -> the modules that have its names now, in the order in which they are asked.
OLD_NAMES = {
    "admission": "mechanisms._admission",
    "audio": "runs.sound data.sound nn.tagger nn.networks nn.weights",
    "audio.classifier": "nn.tagger",
    "audio.clips": "data.clips",
    "audio.dealing": "runs.sound.splitting",
    "audio.decoding": "data.sound.decoding",
    "audio.generator": "data.sound.generator",
    "audio.layouts": "data.sound.layouts",
    "audio.logmel": "data.sound.logmel",
    "audio.mixtures": "runs.sound.splitting",
    "audio.networks": "nn.networks nn.weights",
    "audio.sweep": "runs.sweeps",
    "audio.sweep_report": "runs.report.sweep",
    "audio.tagger": "nn.tagger",
    "audit": "accounting.audit",
    "audit.candidates": "accounting.audit.pairs",
    "audit.law": "accounting.audit.evidence",
    "audit.pairs": "accounting.audit.pairs",
    "ballot_sums": "accounting.exact",
    "bounds": "mechanisms.published",
    "budget": "privacy.budget",
    "calibrate": "accounting runs",
    "card": "runs",
    "catalogue": "runs._catalogue",
    "client": "service.client",
    "collaboration": "parties.collaboration",
    "collaboration.asking": "parties.collaboration.learning",
    "collaboration.learning": "parties.collaboration.learning",
    "collaboration.material": "parties.collaboration.members",
    "collaboration.members": "parties.collaboration.members",
    "collaboration.summary": "parties.collaboration.learning",
    "config": "runs runs.settings",
    "copies": "data.dataset",
    "curves": "data.metrics",
    "datasets": "data data.named",
    "datasets.directory": "data._directory",
    "datasets.images": "data.images",
    "dependencies": "runs.dependencies",
    "devices": "nn.devices",
    "divergence": "mechanisms.divergence",
    "door": "runs.room",
    "envelope": "mechanisms.gap_bounds",
    "estimator": "runs",
    "exact": "accounting.exact",
    "file_sizes": "privacy._files",
    "gaussian_dp": "accounting.costs",
    "label_alternatives": "accounting._label_exact",
    "label_bounds": "mechanisms.labels._published",
    "label_costs": "accounting._label_exact",
    "label_envelope": "mechanisms.labels._perlabel",
    "label_models": "data.label_models",
    "label_votes": "privacy.votes",
    "labelling": "runs.labelling",
    "ledger.groups": "ledger.base",
    "metrics": "data.metrics",
    "noise": "privacy.noise",
    "parties.noise_shares": "parties.prices",
    "personal": "runs.personal",
    "personal.accounting": "runs.personal.accounting",
    "personal.plan": "runs.personal.plan",
    "personal.publishing": "runs.personal.publishing",
    "personal.record": "runs.personal.assignment",
    "personal.rounds": "runs.personal.rounds",
    "personal.running": "runs.personal.accounting",
    "pipeline": "runs runs.pipeline",
    "pipeline.publishing": "runs.publishing",
    "pipeline.shadows": "runs._shadows",
    "public_costs": "accounting.costs",
    "publication": "accounting.smooth",
    "publishable": "accounting._publishable accounting.costs",
    "quotients": "mechanisms._log_sum_sensitivity",
    "rdp": "privacy.rdp",
    "relation": "privacy.relation",
    "release": "privacy.release",
    "report": "runs",
    "repricing": "runs.repricing",
    "rows": "privacy._rows",
    "sealed": "privacy.sealed",
    "sensitivity": "mechanisms.sensitivity",
    "smooth": "accounting.smooth",
    "students.torch.multilabel": "students.torch.mixmatch",
    "students.torch.views": "nn.views",
    "teachers.fallback": "teachers.ballots",
    "teachers.partition": "teachers.partitions",
    "teachers.torch.classifier": "nn.classifier",
    "teachers.torch.label_classifier": "nn.classifier",
    "upset": "mechanisms._flip_probability",
    "votes": "privacy.votes",
    "weights": "nn.weights",
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
