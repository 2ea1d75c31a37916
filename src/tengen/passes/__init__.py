"""The passes from a graph to launches. `compiler/driver.py` has the list of all; `run.py` runs a list and tells observers."""
