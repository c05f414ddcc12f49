"""The dashboard: pages for operators and auditors, made by the server, of public numbers alone."""
