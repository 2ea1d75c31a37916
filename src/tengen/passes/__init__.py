"""Graph -> Graph passes, and the crossing from the graph IR to kernels. `pipeline.py` is the ordered list."""
