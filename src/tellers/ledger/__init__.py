"""Durable memory of what was spent."""

from .base import Entry, Ledger, Ticket
from .memory import MemoryLedger
from .sqlite import SqliteLedger

__all__ = ["Entry", "Ledger", "MemoryLedger", "SqliteLedger", "Ticket"]
