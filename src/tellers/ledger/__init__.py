"""Durable memory of what was spent."""

from .base import AccountState, Charge, Entry, Ledger, Ticket
from .exchange import export_ledger, import_ledger
from .memory import MemoryLedger
from .opening import open_ledger
from .sqlite import SqliteLedger
from .vault import Vault

__all__ = [
    "AccountState",
    "Charge",
    "Entry",
    "Ledger",
    "MemoryLedger",
    "SqliteLedger",
    "Ticket",
    "Vault",
    "export_ledger",
    "import_ledger",
    "open_ledger",
]
