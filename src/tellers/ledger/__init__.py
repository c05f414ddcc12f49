"""The durable record of what was spent: in memory, in SQLite, in PostgreSQL."""

from .. import _lazy

_HOME = {
    "AccountState": ".base",
    "Anchor": ".witness",
    "Charge": ".base",
    "Entry": ".base",
    "Ledger": ".base",
    "MemoryLedger": ".memory",
    "SqliteLedger": ".sqlite",
    "Ticket": ".base",
    "Vault": ".vault",
    "Witness": ".witness",
    "compact_ledger": ".compact",
    "export_ledger": ".opening",
    "import_ledger": ".opening",
    "open_group_accounts": ".base",
    "open_ledger": ".opening",
    "open_witness": ".witness",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
