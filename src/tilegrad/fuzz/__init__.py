"""Random programs that hold the compiler against itself: `python -m tilegrad.fuzz 1000`.

`grammar` writes well-typed programs as Python text, steered towards what has been seen least (`coverage`); `program`
runs a text, `plain` as Python with NumPy; `check` compares devices, Python, reverse mode, forward mode and differences;
`shrink` makes a failing text small; `hunt` does all this for many programs.
Does not know how anything is compiled or differentiated.
"""
