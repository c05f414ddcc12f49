"""The model card, and the safe export of a student with it."""
