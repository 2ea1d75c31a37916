"""The functions of the array API standard, which `tengen.array_api` gathers: `rules.py` says what they take, the others are families of
them."""
