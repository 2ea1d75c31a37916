"""What importers of networks have in common: values that flow while a network is recorded, positions of elements, and its program."""
