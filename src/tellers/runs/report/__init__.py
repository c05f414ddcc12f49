"""The report of a run: one HTML page that needs no network and no JavaScript.

The public page is made of the public result alone. The private one adds what only the operator may see; it
says so in red, and lies where the other private files are.
"""
