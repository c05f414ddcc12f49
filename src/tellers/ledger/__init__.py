"""Durable memory of what was spent."""

from .base import Ledger, Ticket
from .memory import MemoryLedger

__all__ = ["Ledger", "MemoryLedger", "Ticket"]
