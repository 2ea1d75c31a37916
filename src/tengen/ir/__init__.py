"""The graph IR: a recorded program of tensor operations."""
