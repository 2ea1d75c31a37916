"""The command line: ``tengen info | compile | verify | cache | config``."""
