"""From Tile IR to stages: which ops share a loop nest, where each tile lives. Does not know any target."""
