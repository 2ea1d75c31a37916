"""Where programs are compiled, cached, and run."""
