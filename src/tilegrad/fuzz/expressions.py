"""Random expressions of a kind and shape, from the variables in scope and the templates of `rules`.

Does not write statements (see `grammar`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilegrad.fuzz import rules
from tilegrad.fuzz.coverage import Coverage

Shape = tuple[int, ...]

#: what programs that are also run as plain Python do without
BEYOND_PLAIN = "rand|tile_lu|quat|fft"


@dataclass(frozen=True)
class Var:
    """A variable: a scalar if it has no shape, else a tile."""

    name: str
    kind: str
    shape: Shape | None = None
    #: differs between the lanes of a block
    varying: bool = False
    assignable: bool = True


@dataclass
class Setting:
    """What a program can rely on everywhere."""

    dtype: str
    #: arrays that are read only: name -> kind, shape
    inputs: dict[str, tuple[str, Shape]]
    lanes: bool
    block_dim: int
    #: whether composite types of the float dtype have names
    composites: bool = True
    #: whether the program means something as plain Python, with NumPy arrays for tiles
    plain: bool = False


@dataclass
class Expressions:
    """Writes expressions; the state is what is in scope."""

    rng: np.random.Generator
    seen: Coverage
    setting: Setting
    scope: list[Var] = field(default_factory=list)
    #: inside code that runs for some lanes only, where nothing is done together
    divergent: bool = False
    #: only what is the same for the whole block may be used
    uniform: bool = False
    #: some lanes may have returned, and what is read out of arrays counts as different for each lane
    left: bool = False
    #: how many operations may still be written
    fuel: int = 60
    #: functions of the program that were called
    called: set[str] = field(default_factory=set)
    #: array elements may be read (not in functions)
    inside_function: bool = False

    # choices

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def among(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high."""
        return int(self.rng.integers(low, high + 1))

    def rare(self, templates: Sequence[str]) -> str:
        """One of the templates; what has been written less often is likelier."""
        weights = np.array([self.seen.weight(t) for t in templates])
        found = templates[int(self.rng.choice(len(templates), p=weights / weights.sum()))]
        self.seen.wrote(found)
        return found

    @contextmanager
    def changed(self, **flags: Any) -> Iterator[None]:
        before = {name: getattr(self, name) for name in flags}
        for name, value in flags.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    # variables

    def variables(self, kind: str, shape: Shape | None) -> list[Var]:
        return [v for v in self.scope if v.kind == kind and v.shape == shape and not (self.uniform and v.varying)]

    def tiles(self, kind: str | None = None) -> list[Var]:
        return [v for v in self.scope if v.shape is not None and kind in (None, v.kind)]

    @property
    def cooperative(self) -> bool:
        return not self.divergent

    # expressions

    def expr(self, kind: str, shape: Shape | None = None, depth: int = 2) -> str:
        """Text of an expression; a scalar if `shape` is None."""
        if depth <= 0 or self.fuel <= 0 or self.chance(0.15):
            return self.leaf(kind, shape)
        self.fuel -= 1
        options = [*rules.POINTWISE[kind], *(rules.SCALAR if shape is None else rules.TILE)[kind]]
        if kind == "b" and shape is None:
            options = [t for t in options if not re.search(r"[&|^~]", t)]
        if not self.setting.composites:
            options = [t for t in options if not uses_composites(t)]
        if self.setting.plain:
            options = [t for t in options if not re.search(BEYOND_PLAIN, t)]
        if self.inside_function:
            options = [t for t in options if "f_" not in t]
        special = self._special(kind, shape)
        if special and self.chance(0.4):
            return str(self.among(special)(depth))
        if not options:
            return self.leaf(kind, shape)
        return self.filled(self.rare(options), shape, depth - 1)

    def filled(self, template: str, shape: Shape | None, depth: int) -> str:
        """A template with an expression in every hole."""
        whole = self.among(rules.WHOLE)
        axis = self.number(-len(shape), len(shape) - 1) if shape else 0
        self.called.update(re.findall(r"\bf_\w+", template))

        def hole(found: re.Match[str]) -> str:
            code = found[1]
            if code == "c":
                return f"{self.rng.uniform(-1, 1):.2f}"
            if code == "e":
                return f"{self.rng.uniform(0.01, 0.3):.4f}"
            if code == "c1":
                return str(self.number(-1, 1))
            if code.isdigit():
                return str(self.number(0, int(code)))
            if code in ("W", "ax!"):
                return whole if code == "W" else str(axis)
            if code == "ax":
                return str(axis if self.chance(0.8) else None)
            if code == "tf":
                return str(self.chance(0.5))
            if code.endswith("."):
                with self.changed(uniform=True):
                    return atom(self.expr(code[:-1], None, depth))
            if code.endswith("~"):
                return atom(self.expr(code[:-1], self.broadcastable(shape), depth))
            return atom(self.expr(code, shape, depth))

        skips = shape is None and bool(re.search(r" if | and | or |< .* <", template))
        with self.changed(divergent=self.divergent or (skips and self.setting.lanes and not self.uniform)):
            return re.sub(r"\{([\w~.!]+)\}", hole, template)

    def broadcastable(self, shape: Shape | None) -> Shape | None:
        """The shape, or one that NumPy broadcasts to it (None: a scalar)."""
        if shape is None or self.chance(0.5):
            return shape
        if self.chance(0.3):
            return None
        kept = tuple(n if self.chance(0.6) else 1 for n in shape)
        return kept[self.number(0, len(shape) - 1) :]

    def _special(self, kind: str, shape: Shape | None) -> list[Callable[[int], str]]:
        """Ways to make an expression that no template can say."""
        if self.inside_function:
            return []
        if shape is None:
            return [self._scalar_of_tile] if kind == "r" and self.cooperative else []
        moved: list[Callable[[int], str]] = [
            lambda d: self._reshaped(kind, shape, d), lambda d: self._transposed(kind, shape, d),
            lambda d: self._sliced(kind, shape, d), lambda d: self._spread(kind, shape, d),
        ]  # fmt: skip
        if kind == "r":
            moved += [lambda d: self._reduced(shape, d), lambda d: self._weighted(shape, d)]
            moved += [lambda d: self._reduced(shape, d), lambda d: self._weighted(shape, d)]
            moved += [lambda d: self._gathered(shape, d)]
            if len(shape) >= 2:
                moved += [lambda d: self._product(shape, d)]
            if self.setting.lanes and shape == (self.setting.block_dim,):
                moved += [lambda d: self._of_lanes(d)]
        if kind == "v2":
            moved += [lambda d: self._rfft(shape, d)]
            if len(shape) >= 2:
                moved += [lambda d: self._product(shape, d, "v2")]
        return moved

    # leaves

    def leaf(self, kind: str, shape: Shape | None) -> str:
        known = self.variables(kind, shape)
        if known and self.chance(0.8):
            return str(self.among(known).name)
        return self._scalar_leaf(kind) if shape is None else self._tile_leaf(kind, shape)

    def _scalar_leaf(self, kind: str) -> str:
        known = self.variables(kind, None)
        places = [] if self.inside_function else [self._array_element, self._tile_element]
        if places and self.chance(0.7) and (found := self.among(places)(kind)):
            return str(found)
        if known:
            return str(self.among(known).name)
        return self._literal(kind)

    def _literal(self, kind: str) -> str:
        if kind == "r":
            return f"Real({self.rng.uniform(-1, 1):.2f})"
        if kind == "i":
            return str(self.number(0, 4))
        if kind == "b":
            ints = self.variables("i", None)
            return f"{self.among(ints).name} > {self.number(0, 3)}" if ints else "1 > 0"
        numbers = {"v2": 2, "v3": 3, "v4": 4, "m22": 4, "m33": 9, "m44": 16, "sv": 6}
        if kind in numbers:
            parts = ", ".join(f"{self.rng.uniform(-1, 1):.1f}" for _ in range(numbers[kind]))
            return f"{rules.KINDS[kind]}({parts})"
        made = {"q": "tg.quat_identity(Real)", "x": "tg.transform_identity(Real)"}
        return made.get(
            kind, f"Body(mass={self._literal('r')}, at={self._scalar_leaf('v3')}, count={self.number(0, 3)})"
        )

    def _array_element(self, kind: str) -> str | None:
        if self.left and self.uniform:
            return None
        found = [(name, shape) for name, (k, shape) in self.setting.inputs.items() if k == kind]
        if not found:
            return None
        name, shape = self.among(found)
        return f"{name}[{', '.join(self.index(n) for n in shape)}]"

    def _tile_element(self, kind: str) -> str | None:
        found = self.tiles(kind)
        if not found:
            return None
        v = self.among(found)
        where = ", ".join(self.index(n) for n in v.shape or ())
        return f"tg.tile_extract({v.name}, {where})" if self.chance(0.2) else f"{v.name}[{where}]"

    def index(self, extent: int) -> str:
        """An index into so many places."""
        ints = self.variables("i", None)
        way = self.number(0, 3)
        if way == 0:
            return str(-self.number(1, extent))
        if way == 1 and ints:
            return f"({self.among(ints).name} + {self.number(0, 3)}) % {extent}"
        if (
            way == 2
            and ints
            and not (self.left and self.uniform)
            and "m" in self.setting.inputs
            and not self.inside_function
        ):
            size = self.setting.inputs["m"][1][0]
            return f"m[{self.among(ints).name} % {size}] % {extent}"
        return str(self.number(0, extent - 1))

    def _tile_leaf(self, kind: str, shape: Shape) -> str:
        ways: list[Callable[[], str]] = [lambda: self._full(kind, shape)]
        arrays = [name for name, (k, _) in self.setting.inputs.items() if k == kind]
        if arrays and not self.inside_function:
            ways += [lambda: self._load(self.among(arrays), shape)] * 3
        if kind == "r":
            ways.append(lambda: self._made(shape))
        return str(self.among(ways)())

    def _full(self, kind: str, shape: Shape) -> str:
        with self.changed(uniform=True):
            value = self._literal(kind) if self.chance(0.3) else self._scalar_leaf(kind)
        return f"tg.tile_full({shape}, {value})"

    def _made(self, shape: Shape) -> str:
        size = math.prod(shape)
        forms = [f"tg.tile_zeros({shape}, dtype=Real)", f"tg.tile_ones(shape={shape}, dtype=Real)",
                 f"tg.tile_empty({shape}, Real) + 0.5",
                 f"tg.tile_reshape(tg.tile_arange({size}, dtype=Real) * 0.1, {shape})",
                 f"tg.tile_randf({shape}, tg.rand_init({self.number(0, 9)}), dtype=Real)"]  # fmt: skip
        if len(shape) <= 4:
            names = ", ".join("ijkl"[: len(shape)])
            forms.append(f"tg.tile_fromfunction(lambda {names}: Real(i) * 0.25 + Real({names[-1]}) * 0.1, {shape})")
        return self.rare([f for f in forms if not (self.setting.plain and "rand" in f)])

    def _load(self, name: str, shape: Shape) -> str:
        """A tile out of an array, over its edges now and then."""
        _, extents = self.setting.inputs[name]
        size = math.prod(shape)
        if len(extents) != len(shape):
            return f"tg.tile_reshape({self._load(name, (*(1,) * (len(extents) - 1), size))}, {shape})"
        with self.changed(uniform=True):
            offset = [str(self.number(-1, max(0, n - k) + 1)) for n, k in zip(extents, shape, strict=True)]
            if self.chance(0.4) and not self.setting.lanes:  # after some lanes have returned, array elements differ
                offset[-1] = self.index(2)
        where = ", ".join(offset) + ("," if len(offset) == 1 else "")
        kind = self.setting.inputs[name][0]
        fill = ", fill=0.5" if kind == "r" and self.chance(0.15) else ""
        if "m" in self.setting.inputs and self.chance(0.15) and kind in ("r", "v3"):
            axis = self.number(0, len(shape) - 1)
            places = f"tg.tile_load(m, shape={shape[axis]}, offset={self.number(-1, 1)})"
            self.seen.wrote("tg.tile_load_indexed")
            return f"tg.tile_load_indexed({name}, {places}, shape={shape}, offset=({where}), axis={axis})"
        return f"tg.tile_load({name}, shape={shape}, offset=({where}){fill})"

    # tiles out of other tiles

    def _reshaped(self, kind: str, shape: Shape, depth: int) -> str:
        size = math.prod(shape)
        other = self.among(factorings(size))
        squeezed = tuple(n for n in shape if n > 1)
        if squeezed and squeezed == tuple(n for n in other if n > 1) and len(shape) == len(squeezed):
            return f"tg.tile_squeeze({self.expr(kind, other, depth - 1)})"
        inner = self.expr(kind, other, depth - 1)
        if self.chance(0.3):
            return f"{atom(inner)}.reshape({shape})"
        return f"tg.tile_reshape({inner}, {shape})"

    def _transposed(self, kind: str, shape: Shape, depth: int) -> str:
        if len(shape) == 1 or self.chance(0.5):
            return f"{atom(self.expr(kind, shape[::-1], depth - 1))}.T"
        axes = [int(k) for k in self.rng.permutation(len(shape))]
        source = [0] * len(shape)
        for at, axis in enumerate(axes):
            source[axis] = shape[at]
        return f"tg.tile_transpose({self.expr(kind, tuple(source), depth - 1)}, axes={tuple(axes)})"

    def _sliced(self, kind: str, shape: Shape, depth: int) -> str:
        """A part of a larger tile, with steps."""
        if math.prod(shape) > 24 or len(shape) > 4:
            return self.leaf(kind, shape)
        source, parts = [], []
        for n in shape:
            step = self.among([1, 1, 1, 2, -1])
            start = self.number(0, 1)
            extent = start + (n - 1) * abs(step) + 1 + self.number(0, 1)
            source.append(extent)
            if step < 0:
                high = start + n - 1
                stop = f"{start - 1}" if start > 0 else ""
                parts.append(f"{high}:{stop}:-1")
            else:
                parts.append(f"{start}:{start + (n - 1) * step + 1}:{step}" if step > 1 else f"{start}:{start + n}")
        if math.prod(source) > 96:
            return self.leaf(kind, shape)
        if self.chance(0.3):
            extra = self.number(2, 3)
            at = self.number(0, len(shape))
            source.insert(at, extra)
            parts.insert(at, str(self.number(-extra, extra - 1)))
        inner = self.expr(kind, tuple(source), depth - 1)
        plain = all(":" in p and p.count(":") == 1 for p in parts)
        if plain and self.chance(0.4):
            offset = ", ".join(p.split(":")[0] for p in parts)
            self.seen.wrote("tg.tile_view")
            return f"tg.tile_view({inner}, ({offset},), {shape})"
        return f"{atom(inner)}[{', '.join(parts)}]"

    def _spread(self, kind: str, shape: Shape, depth: int) -> str:
        kept = self.broadcastable(shape) or shape
        return f"tg.tile_broadcast({self.expr(kind, kept, depth - 1)}, {shape})"

    def _reduced(self, shape: Shape, depth: int) -> str:
        """Along an axis that is not there any more, or that has become 1."""
        if len(shape) >= 8 or math.prod(shape) > 32:
            return self._weighted(shape, depth)
        ones = [k for k, n in enumerate(shape) if n == 1]
        keep = bool(ones) and self.chance(0.5)
        extent = self.number(1, 4)
        axis = self.among(ones) if keep else self.number(0, len(shape))
        source = (*shape[:axis], extent, *shape[axis + keep :])
        named = axis if self.chance(0.7) else axis - len(source)
        how = self.rare(
            ("tg.tile_sum({})", "tg.tile_prod(tg.cos({}))", "tg.tile_min({})", "tg.tile_max({})",
             "tg.tile_reduce(tg.add, {})", "tg.tile_reduce(tg.max, {})",
             "tg.tile_reduce(lambda a, b: a + b + a * b * 0.25, tg.sin({}))")
        )  # fmt: skip
        text = how.replace("{}", self.expr("r", source, depth - 1))
        return f"{text[:-1]}, axis={named}{', keepdims=True' if keep else ''})"

    def _weighted(self, shape: Shape, depth: int) -> str:
        return f"{atom(self.expr('r', shape, depth - 1))} * tg.tanh({self.one(depth - 1)})"

    def _scalar_of_tile(self, depth: int) -> str:
        with self.changed(uniform=True):
            return f"tg.sin({atom(self.one(depth - 1))}[0])"

    def one(self, depth: int) -> str:
        """A tile of one real, out of all sorts of tiles."""
        options = [t for t in rules.ONE if self.setting.composites or not uses_composites(t)]
        if self.setting.dtype in ("float16", "bfloat16"):
            options = [t for t in options if not re.search(r"eigh|qr|inv|lu|solve|cholesky|det|fft|rand", t)]
        if self.setting.plain:
            options = [t for t in options if not re.search(BEYOND_PLAIN, t)]
        template = self.rare(options)
        with self.changed(uniform=True):
            return self._one(template, depth)

    def _one(self, template: str, depth: int) -> str:
        n = self.number(1, 3)
        shape: Shape = self.among([(3,), (2, 3), (n, 2), (4,), (2, 2, 2)])
        self.called.update(re.findall(r"\bf_\w+", template))

        def mild() -> str:
            return f"tg.sin({self.expr('r', (n, n), min(depth, 1))}) * 0.3"

        def full(x: float) -> str:
            return f"tg.tile_full({n}, Real({x}))"

        factor = self.leaf("r", (n, n)) if "{P}" in template else ""
        special: dict[str, Callable[[], str]] = {
            "A": lambda: atom(self.expr("r", (n, n), min(depth, 1))),
            "w": lambda: atom(self.expr("r", (n,), min(depth, 1))),
            "G": lambda: f"tg.tile_diag_add({mild()}, {full(2.0)})",
            "P": lambda: f"tg.tile_diag_add(tg.sin({factor}) @ tg.sin({factor}).T * 0.3, {full(1.5)})",
            "E": lambda: f"tg.tile_diag_add({mild()}, tg.tile_arange({n}, dtype=Real) * 3.0 + 1.0)",
            "L": lambda: f"tg.tile_tril(tg.tile_diag_add({mild()}, {full(2.0)}))",
            "k": lambda: str(self.number(1, math.prod(shape))),
            "ul": lambda: self.among(["lower", "upper"]),
            "ix": lambda: f"tg.tile_astype(tg.tile_arange(3), int) * {self.number(0, 3)} % {shape[0]}",
            "v2m": lambda: self.expr("v2", (2, 2), min(depth, 1)),
        }

        def hole(found: re.Match[str]) -> str:
            return special[found[1]]() if found[1] in special else found[0]

        text = re.sub(r"\{(\w+)\}", hole, template)
        return self.filled(text, shape, min(depth, 1))

    def _gathered(self, shape: Shape, depth: int) -> str:
        if math.prod(shape) > 32:
            return self.leaf("r", shape)
        axis, extent = self.number(0, len(shape) - 1), self.number(1, 4)
        source = (*shape[:axis], extent, *shape[axis + 1 :])
        places = f"{atom(self.expr('i', (shape[axis],), 1))} % {extent}"
        self.seen.wrote("tg.tile_slice_indexed")
        return f"tg.tile_slice_indexed({self.expr('r', source, depth - 1)}, {places}, axis={axis})"

    def _product(self, shape: Shape, depth: int, kind: str = "r") -> str:
        k = self.number(1, 4)
        a, b = (*shape[:-1], k), (*(shape[:-2] if self.chance(0.6) else ()), k, shape[-1])
        if math.prod(a) > 64 or math.prod(b) > 64:
            return self.leaf(kind, shape)
        text = f"{atom(self.expr(kind, a, depth - 1))} @ {atom(self.expr(kind, b, depth - 1))}"
        return f"({text}) * 0.4" if kind == "r" else text

    def _rfft(self, shape: Shape, depth: int) -> str:
        n = max(1, 2 * shape[-1] - self.number(1, 2))
        norm = self.among(["None", '"ortho"', '"forward"', '"backward"'])
        if n // 2 + 1 != shape[-1] or self.setting.dtype in ("float16", "bfloat16"):
            return self.leaf("v2", shape)
        self.seen.wrote("tg.tile_rfft")
        return f"tg.tile_rfft({self.expr('r', (*shape[:-1], n), depth - 1)}, norm={norm}) * 0.4"

    def _of_lanes(self, depth: int) -> str:
        with self.changed(uniform=False):
            value = self.expr("r", None, depth - 1)
        self.seen.wrote("tg.tile(")
        if self.chance(0.2):
            return (
                f"tg.tile_from_thread({self.setting.block_dim}, {value}, {self.number(0, self.setting.block_dim - 1)})"
            )
        return f"tg.tile({value})"


def uses_composites(template: str) -> bool:
    return bool(re.search(r"\{(v\d|m\d\d|q|x|sv|S|v2m)\}|Vec|Mat|fft|Body", template))


def atom(text: str) -> str:
    """The text as an operand: in parentheses if it has an operator outside of brackets."""
    depth = 0
    for k, ch in enumerate(text):
        depth += (ch in "([{") - (ch in ")]}")
        if depth == 0 and (ch in " -~" and not (ch == " " and text[k - 1] == ",")):
            return f"({text})"
    return text


def factorings(size: int) -> list[Shape]:
    """Shapes with so many elements."""
    found: list[Shape] = [(size,), (1, size), (size, 1)]
    found += [(k, size // k) for k in range(2, size) if size % k == 0]
    found += [(k, 1, size // k) for k in range(2, size) if size % k == 0]
    return found
