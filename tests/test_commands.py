"""Adjoint launches and launches kept as commands."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg


@tg.kernel
def square(x: tg.array1d[float], factor: float, y: tg.array1d[float]):
    i = tg.tid()
    y[i] = x[i] * x[i] * factor


@tg.kernel
def lengths(x: tg.array[tg.vec3], y: tg.array[float]):
    t = tg.tile_load(x, shape=2)
    tg.tile_store(y, tg.tile_map(tg.length_sq, t))


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_adjoint_with_arrays_of_adjoints(device):
    x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
    dx, dy = np.array([10, 0, 0], np.float32), np.array([1, 1, 2], np.float32)
    tg.launch(
        square, dim=3, inputs=[x, 0.5], outputs=[y], adj_inputs=[dx], adj_outputs=[dy], adjoint=True, device=device
    )
    assert dx.tolist() == [11, 2, 6] and dy.tolist() == [0, 0, 0] and y.tolist() == [0, 0, 0]


@pytest.mark.parametrize("device", ["interpret", "cpu"])
def test_adjoint_into_the_gradients_of_composites(device):
    x = tg.array([tg.vec3(1, 2, 3), tg.vec3(4, 5, 6)], requires_grad=True)
    y = tg.zeros(2, requires_grad=True)
    y.grad.assign([1.0, 2.0])
    tg.launch_tiled(lengths, dim=1, inputs=[x], outputs=[y], adjoint=True, device=device)
    assert x.grad.numpy().tolist() == [[2, 4, 6], [16, 20, 24]]


def test_adjoints_that_do_not_fit():
    x, y = np.ones(3, np.float32), np.ones(3, np.float32)
    with pytest.raises(tg.LaunchError, match="adj_outputs has 2 entries for 1"):
        tg.launch(square, dim=3, inputs=[x, 1.0], outputs=[y], adj_outputs=[y, y], adjoint=True)
    with pytest.raises(tg.LaunchError, match="has an adjoint of"):
        tg.launch(square, dim=3, inputs=[x, 1.0, y], adj_inputs=[np.ones(2, np.float32), None, y], adjoint=True)


def test_commands():
    x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
    command = tg.launch(square, dim=3, inputs=[x, 1.0], outputs=[y], record_cmd=True, stream=None, max_blocks=0)
    assert not y.any()
    command.launch()
    assert y.tolist() == [1, 4, 9]
    command.set_param_at_index(1, 2.0)
    command.set_dim(2)
    command.launch()
    assert y.tolist() == [2, 8, 9]
    command.set_params([x, 3.0, y])
    command.set_param_by_name("x", np.zeros(3, np.float32))
    command.launch()
    assert y.tolist() == [0, 0, 9]
    with pytest.raises(tg.LaunchError, match="no parameter `z`"):
        command.set_param_by_name("z", 1)
