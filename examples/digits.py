"""Teach a small neural network to read handwritten digits, with tile kernels for every step.

    python examples/digits.py

The network has 64 inputs (an image of 8 x 8 pixels), 128 hidden units and 10 outputs. A kernel is a program for one
*block*: it loads tiles, small arrays, computes with them as with NumPy arrays, and stores tiles. A launch runs it for
every block of a grid. Nobody writes the backward pass: the tape records the launches and derives it.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.progress import track
from sklearn import datasets

import tilegrad as tg

ROWS, COLS, INNER = 32, 64, 64  # the tile of outputs that one block computes, and the step along the sum
CLASSES, HIDDEN, BATCH, EPOCHS = 10, 128, 64, 60


@tg.func
def relu(x: float):
    return tg.max(x, 0.0)


@tg.func
def identity(x: float):
    return x


def make_dense(activation):
    """The kernel of one layer, y = activation(x @ w + b). Tiles may hang over the edges of the arrays."""

    @tg.kernel
    def dense(x: tg.array2d[float], w: tg.array2d[float], b: tg.array1d[float], y: tg.array2d[float]):
        i, j = tg.tid()
        total = tg.tile_zeros(shape=(ROWS, COLS), dtype=float)
        for k in range(tg.cdiv(x.shape[1], INNER)):
            left = tg.tile_load(x, shape=(ROWS, INNER), offset=(i * ROWS, k * INNER))
            right = tg.tile_load(w, shape=(INNER, COLS), offset=(k * INNER, j * COLS))
            total += left @ right
        total += tg.tile_load(b, shape=COLS, offset=j * COLS)
        tg.tile_store(y, tg.tile_map(activation, total), offset=(i * ROWS, j * COLS))

    return dense


hidden_layer, output_layer = make_dense(relu), make_dense(identity)


@tg.kernel
def cross_entropy(scores: tg.array2d[float], labels: tg.array1d[int], loss: tg.array1d[float]):
    """Adds up the mean over the images of -log(probability of the right digit). One block, one image."""
    i = tg.tid()
    z = tg.tile_load(scores[i], shape=CLASSES)
    z = z - tg.tile_max(z)  # so that exp cannot overflow
    right = tg.tile_arange(CLASSES, dtype=int) == labels[i]
    chosen = tg.tile_sum(tg.where(right, z, 0.0))
    entropy = tg.tile_map(tg.log, tg.tile_sum(tg.tile_map(tg.exp, z))) - chosen
    tg.tile_atomic_add(loss, entropy / float(scores.shape[0]))


@tg.kernel
def adam(
    w: tg.array1d[float], g: tg.array1d[float], mean: tg.array1d[float], square: tg.array1d[float],
    rate: float, step: int,
):  # fmt: skip
    """One step of Adam (Kingma and Ba 2015) on every weight: here each thread has a weight of its own."""
    i = tg.tid()
    mean[i] = 0.9 * mean[i] + 0.1 * g[i]
    square[i] = 0.999 * square[i] + 0.001 * g[i] * g[i]
    m = mean[i] / (1.0 - 0.9 ** float(step))
    s = square[i] / (1.0 - 0.999 ** float(step))
    w[i] = w[i] - rate * m / (tg.sqrt(s) + 1e-8)


class Model:
    """The weights, what the optimiser remembers of each, and the arrays between the layers."""

    def __init__(self, rng: np.random.Generator) -> None:
        def random(n, m):
            return tg.array((rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32), requires_grad=True)

        self.w1, self.b1 = random(64, HIDDEN), tg.zeros(HIDDEN, requires_grad=True)
        self.w2, self.b2 = random(HIDDEN, CLASSES), tg.zeros(CLASSES, requires_grad=True)
        self.weights = [w.reshape(w.size) for w in (self.w1, self.b1, self.w2, self.b2)]
        self.state = [(tg.zeros(w.size), tg.zeros(w.size)) for w in self.weights]
        self.steps = 0

    def forward(self, images):
        n = images.shape[0]
        hidden, scores = (tg.zeros((n, m), requires_grad=True) for m in (HIDDEN, CLASSES))
        grid = (tg.cdiv(n, ROWS), tg.cdiv(HIDDEN, COLS))
        tg.launch_tiled(hidden_layer, dim=grid, inputs=[images, self.w1, self.b1], outputs=[hidden])
        tg.launch_tiled(output_layer, dim=(grid[0], 1), inputs=[hidden, self.w2, self.b2], outputs=[scores])
        return scores

    def train(self, images, labels, rate):
        """One step on one batch; the loss before the step."""
        loss = tg.zeros(1, requires_grad=True)
        with tg.Tape() as tape:
            scores = self.forward(images)
            tg.launch_tiled(cross_entropy, dim=len(images), inputs=[scores, labels], outputs=[loss])
        tape.backward(loss)
        self.steps += 1
        for w, (mean, square) in zip(self.weights, self.state, strict=True):
            tg.launch(adam, dim=w.size, inputs=[w, w.grad, mean, square, rate, self.steps])
        tape.zero()
        return float(loss.numpy()[0])


def load_digits(rng):
    """scikit-learn's 1797 digits, shuffled and split: images in [0, 1] and labels, for training and for testing."""
    data = datasets.load_digits()
    order = rng.permutation(len(data.target))
    images, labels = (data.data[order] / 16).astype(np.float32), data.target[order].astype(np.int32)
    return images[:1437], labels[:1437], images[1437:], labels[1437:]


def save_picture(path, losses, images, labels, predicted):
    """The loss curve and a grid of test digits with what the network reads; mistakes are red."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    curve, grid = figure.subfigures(1, 2)
    axes = curve.subplots()
    axes.semilogy(losses)
    axes.set(xlabel="step", ylabel="loss", title="training")
    for k, axis in enumerate(grid.subplots(5, 8).ravel()):
        axis.imshow(images[k].reshape(8, 8), cmap="gray_r")
        axis.set_title(str(predicted[k]), color="black" if predicted[k] == labels[k] else "red", fontsize=9)
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    rng = np.random.default_rng(0)
    images, labels, test_images, test_labels = load_digits(rng)
    model, losses = Model(rng), []
    start = time.perf_counter()
    for epoch in track(range(EPOCHS), description="learning"):
        order = rng.permutation(len(labels))
        rate = 3e-3 * (1 - epoch / EPOCHS)
        for k in range(0, len(labels), BATCH):
            batch = order[k : k + BATCH]
            losses.append(model.train(images[batch], labels[batch], rate))
    seconds = time.perf_counter() - start
    predicted = model.forward(test_images).numpy().argmax(axis=1)
    picture = Path("out/digits.png")
    save_picture(picture, losses, test_images, test_labels, predicted)
    print(f"{len(losses)} steps in {seconds:.1f} s, {1e3 * seconds / len(losses):.2f} ms per step")
    print(f"test accuracy {np.mean(predicted == test_labels):.3f}")
    print(f"picture saved to {picture}")


if __name__ == "__main__":
    main()
