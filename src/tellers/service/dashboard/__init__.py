"""The dashboard: pages for operators and auditors, made by the server, of public numbers alone."""

from .pages import add_dashboard, is_page

__all__ = ["add_dashboard", "is_page"]
