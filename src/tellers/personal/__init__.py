"""Personalised budgets: everybody as private as they asked to be."""
