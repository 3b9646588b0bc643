"""tilegrad: tile kernels in Python, compiled for CPUs and GPUs, with exact gradients."""
