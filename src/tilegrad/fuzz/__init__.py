"""Random programs that hold the compiler against itself: `python -m tilegrad.fuzz 1000`.

`grammar` writes well-typed programs as Python text, steered towards what has been seen least (`coverage`); `program`
runs a text; `check` compares devices, reverse mode, forward mode and differences; `shrink` makes a failing text small.
Does not know how anything is compiled or differentiated.
"""
