"""The durable record of what was spent: in memory, in SQLite, in PostgreSQL."""

from .. import _lazy

_HOME = {
    "AccountState": ".base",
    "Charge": ".base",
    "Entry": ".base",
    "Ledger": ".base",
    "MemoryLedger": ".memory",
    "SqliteLedger": ".sqlite",
    "Ticket": ".base",
    "Vault": ".vault",
    "export_ledger": ".opening",
    "import_ledger": ".opening",
    "open_group_accounts": ".base",
    "open_ledger": ".opening",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
