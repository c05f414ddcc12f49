"""The labelling service: labels for those who hold a key, each charged before it is drawn."""

from .. import _lazy

_HOME = {
    "Client": ".client",
    "KeysConfig": ".settings",
    "LedgerConfig": ".settings",
    "LimitsConfig": ".settings",
    "PlanConfig": ".settings",
    "ServedConfig": ".settings",
    "ServerConfig": ".settings",
    "ServiceSettings": ".settings",
    "VaultConfig": ".settings",
    "WitnessConfig": ".settings",
    "create_app": ".app",
    "parse_settings": ".settings",
    "read_settings": ".settings",
    "write_settings": ".settings",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
