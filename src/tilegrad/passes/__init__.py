"""Optimisations of Tile IR, one per file: each is a function `run(kernel) -> kernel` that changes no result."""
