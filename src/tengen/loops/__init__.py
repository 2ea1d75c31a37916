"""The kernel IR: a small, closed language of loops over buffers, and what it means."""
