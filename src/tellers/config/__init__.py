"""The settings of a run: typed records, and the commented TOML file they are read from."""

from .cluster import ClusterConfig
from .defaults import default_config
from .labels import LabelsConfig
from .mechanism import MechanismConfig
from .party import PartySettings
from .party_files import parse_party, read_party, write_party
from .personal import PersonalConfig
from .reading import parse_config, read_config
from .sections import (
    BudgetConfig,
    DataConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
)
from .writing import config_as_dict, with_absolute_paths, write_config

__all__ = [
    "BudgetConfig",
    "ClusterConfig",
    "DataConfig",
    "LabelsConfig",
    "MechanismConfig",
    "PartitionConfig",
    "PartySettings",
    "PersonalConfig",
    "QueriesConfig",
    "ReportConfig",
    "RunConfig",
    "StudentConfig",
    "TeachersConfig",
    "config_as_dict",
    "default_config",
    "parse_config",
    "parse_party",
    "read_config",
    "read_party",
    "with_absolute_paths",
    "write_config",
    "write_party",
]
