"""The labelling service: labels for those who hold a key, each charged before it is drawn."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .reading import parse_settings, read_settings, write_settings
from .settings import (
    KeysConfig,
    LedgerConfig,
    LimitsConfig,
    PlanConfig,
    ServedConfig,
    ServerConfig,
    ServiceSettings,
    VaultConfig,
)

if TYPE_CHECKING:
    from .app import create_app

__all__ = [
    "KeysConfig",
    "LedgerConfig",
    "LimitsConfig",
    "PlanConfig",
    "ServedConfig",
    "ServerConfig",
    "ServiceSettings",
    "VaultConfig",
    "create_app",
    "parse_settings",
    "read_settings",
    "write_settings",
]


def __getattr__(name: str) -> Any:
    # Settings and keys are read where no web framework is installed.
    if name == "create_app":
        from ..errors import MissingExtra

        try:
            return import_module(".app", __name__).create_app
        except ModuleNotFoundError as error:
            raise MissingExtra(f"The service needs {error.name}: pip install 'tellers[service]'") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
