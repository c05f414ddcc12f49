"""The settings of a run: typed records, and the commented TOML file they are read from."""
