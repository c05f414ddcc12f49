"""The mechanisms: how votes become outcomes."""

from .. import _lazy

_HOME = {
    "base": "Mechanism",
    "confident": "ConfidentGNMax",
    "divergence": "divergences",
    "gap_bounds": "gap_envelope",
    "gaussian_sum": "GaussianSum sum_sigma",
    "gnmax": "GNMax",
    "histogram": "NoisyHistogram",
    "interactive": "InteractiveGNMax",
    "labels.adaptive": "AdaptiveGNThreshold",
    "labels.binary": "Binary ConfidentBinary",
    "labels.dependent": "ConfidentDependentBinary DependentBinary Implications",
    "labels.gnthreshold": "ConfidentGNThreshold GNThreshold",
    "labels.powerset": "ConfidentPowerset PartialPowerset Powerset",
    "labels.tau": "ConfidentTau Tau",
    "lnmax": "LNMax",
    "published": "published_gnmax",
    "registry": (
        "EVENTS LABEL_MECHANISMS MECHANISMS check_parameters mechanism_named names parameter register"
    ),
    "sensitivity": "gnmax_cost gnmax_local_sensitivities smooth_sensitivity",
    "suprema": "argmax_supremum check_supremum",
    "tested": "TestedGNMax",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
