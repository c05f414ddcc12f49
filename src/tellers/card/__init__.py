"""The model card, and the safe export of a student with it."""

from .card import ModelCard
from .export import Portable, export_student, load_student
from .result import RunResult

__all__ = ["ModelCard", "Portable", "RunResult", "export_student", "load_student"]
