"""Tile IR: frozen SSA over scalars, tiles and arrays."""
