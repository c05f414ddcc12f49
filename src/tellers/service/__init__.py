"""The labelling service: labels for those who hold a key, each charged before it is drawn."""

from .. import _lazy

_HOME = {
    "app": "create_app",
    "client": "Client",
    "settings": (
        "KeysConfig LedgerConfig LimitsConfig PlanConfig ServedConfig ServerConfig ServiceSettings "
        "VaultConfig WitnessConfig parse_settings read_settings write_settings"
    ),
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
