"""The durable record of what was spent: in memory, in SQLite, in PostgreSQL."""

from .. import _lazy

_HOME = {
    "base": "AccountState Charge Entry Ledger Ticket open_group_accounts",
    "compact": "compact_ledger",
    "memory": "MemoryLedger",
    "opening": "export_ledger import_ledger open_ledger",
    "sqlite": "SqliteLedger",
    "vault": "Vault",
    "witness": "Anchor Witness open_witness",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
