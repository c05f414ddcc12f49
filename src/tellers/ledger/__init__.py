"""Durable memory of what was spent."""

from .base import AccountState, Charge, Entry, Ledger, Ticket
from .memory import MemoryLedger
from .opening import open_ledger
from .sqlite import SqliteLedger

__all__ = [
    "AccountState",
    "Charge",
    "Entry",
    "Ledger",
    "MemoryLedger",
    "SqliteLedger",
    "Ticket",
    "open_ledger",
]
