"""Random programs: statements over whatever is in scope, in kernels, and launches of the kernels.

A kernel is written for blocks (`launch_tiled`), for lanes (`launch`, or `launch_tiled` with a lane index), or for
memory (one block that reads and writes the same arrays). Does not run programs (see `program`).
"""

# ruff: noqa: E501 (the text of a program is easier to read in one piece)

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tilegrad.fuzz import rules
from tilegrad.fuzz.coverage import Coverage
from tilegrad.fuzz.expressions import Expressions, Setting, Shape, Var, atom

#: arrays that a program has: name -> element kind and shape
INPUTS: dict[str, tuple[str, Shape]] = {
    "x": ("r", (4, 6)), "w": ("r", (7,)), "y": ("r", (2, 3, 4)), "m": ("i", (6,)), "v": ("v3", (5,)), "z": ("v2", (4,)),
    "a2": ("m22", (3,)), "a3": ("m33", (3,)), "q": ("q", (4,)), "p": ("x", (3,)), "b": ("S", (4,)), "sv": ("sv", (3,)),
}  # fmt: skip
ANNOTATIONS = {1: "tg.array1d", 2: "tg.array2d", 3: "tg.array3d", 4: "tg.array4d"}
LETTERS = {"r": "s", "i": "k", "b": "c", "S": "b"}
DTYPES = ("float64", "float64", "float64", "float64", "float64", "float32", "float32", "float16", "bfloat16")


@dataclass
class KernelText:
    """A kernel, and what to launch it with."""

    name: str
    text: str
    #: parameters in order: name -> kind and shape of an array
    arrays: dict[str, tuple[str, Shape]]
    has_n: bool
    launch: str
    functions: set[str]


@dataclass
class Writer:
    """Writes one kernel."""

    e: Expressions
    name: str
    #: "blocks", "lanes" (launch), "tiled lanes", "memory"
    form: str
    blocks: int
    lanes: int
    outputs: dict[str, tuple[str, Shape]] = field(default_factory=dict)
    count: int = 0
    #: loops around, innermost last: whether lanes may leave it one by one
    loops: list[bool] = field(default_factory=list)
    #: ways to say that a statement ends (a loop body or the kernel must not go on)
    main: Shape = (2, 3)
    #: tiles that have several names, so that no name is given to another tile
    #: whether the kernel has atomic minima and maxima, or uses old values
    extremes: bool = False
    aliased: set[str] = field(default_factory=set)

    @property
    def dtype(self) -> str:
        return self.e.setting.dtype

    def fresh(self, kind: str, shape: Shape | None = None) -> str:
        self.count += 1
        return f"{'t' if shape is not None else LETTERS.get(kind, 'v')}{self.count}"

    def bind(self, kind: str, shape: Shape | None, varying: bool = False) -> str:
        """A new variable in scope."""
        name = self.fresh(kind, shape)
        self.e.scope.append(Var(name, kind, shape, varying))
        return name

    # statements

    def block(self, depth: int, indent: str, size: int) -> list[str]:
        """A few statements; variables that they bind go out of scope."""
        before = len(self.e.scope)
        lines: list[str] = []
        for _ in range(size):
            lines += [indent + line for line in self.statement(depth)]
        del self.e.scope[before:]
        return lines or [indent + "pass"]

    def statement(self, depth: int) -> list[str]:
        e = self.e
        plain: list[tuple[str, Callable[[], list[str]]]] = [
            ("assign scalar", self.assign_scalar), ("assign scalar", self.assign_scalar), ("update scalar", self.update_scalar),
            ("member", self.write_member), ("atomic", self.atomic), ("tuple", self.carried_tuple),
        ]  # fmt: skip
        if e.setting.composites:
            plain += [("composite", self.assign_composite)] * 2
        if not e.setting.plain:
            plain += [("random", self.random)]
        if e.cooperative:
            plain += [
                ("assign tile", self.assign_tile), ("assign tile 2", self.assign_tile), ("assign tile 3", self.assign_tile),
                ("update tile", self.update_tile), ("slice", self.write_slice), ("element", self.write_element),
                ("alias", self.alias), ("in place", self.in_place), ("several", self.several_results),
                ("store", self.store), ("operator", self.operator_in_place),
            ]  # fmt: skip
            if e.setting.lanes:
                plain += [("scatter", self.scatter), ("stack", self.stack), ("untile", self.untile)]
        if self.form == "memory" or e.setting.lanes:
            plain += [("memory", self.memory), ("memory 2", self.memory)]
        if depth > 0:
            plain += [("if", lambda: self.branch(depth)), ("for", lambda: self.for_loop(depth)),
                      ("while", lambda: self.while_loop(depth)), ("true", lambda: self.endless_loop(depth))]  # fmt: skip
        if self.loops:
            plain += [("leave", self.leave_loop)]
        key = e.rare([f"statement {k}" for k, _ in plain])
        return dict(plain)[key.removeprefix("statement ")]()

    def varying(self) -> bool:
        """Whether the next variable may differ between lanes."""
        return self.e.setting.lanes and (self.e.divergent or (self.e.uniform is False and self.e.chance(0.7)))

    def assign_scalar(self) -> list[str]:
        e = self.e
        kind = e.among(["r", "r", "r", "i", "b"])
        known = [v for v in e.scope if v.kind == kind and v.shape is None and v.assignable]
        if e.divergent:
            known = [v for v in known if v.varying]
        if known and e.chance(0.6):
            v = e.among(known)
            with e.changed(uniform=e.uniform or not v.varying):
                return [f"{v.name} = {self.bounded(kind, e.expr(kind, None, 2))}"]
        varying = self.varying()
        with e.changed(uniform=e.uniform or not varying):
            value = e.expr(kind, None, 3)
        return [f"{self.bind(kind, None, varying)} = {value}"]

    def bounded(self, kind: str, value: str) -> str:
        """In loops, what is assigned again and again must not grow."""
        if self.loops and kind == "r" and not re.match(r"tg\.(sin|cos|tanh|atan)\(", value):
            return f"tg.sin({value})"
        if kind == "i" and self.loops:
            return f"({value}) % 11"
        return value

    def update_scalar(self) -> list[str]:
        e = self.e
        known = [v for v in e.scope if v.kind == "r" and v.shape is None and (v.varying or not e.divergent)]
        if not known:
            return self.assign_scalar()
        v = e.among(known)
        with e.changed(uniform=e.uniform or not v.varying):
            form = e.rare(
                (
                    "{v} += {r} * 0.5",
                    "{v} -= {r}",
                    "{v} *= tg.cos({r})",
                    "{v} /= 2.0 + tg.sin({r})",
                    "{v} %= 1.5137",
                    "{v} //= 1.5137 + tg.cos({r}) * 0.1",
                )
            )
            return [e.filled(form.replace("{v}", v.name), None, 1)]

    def assign_composite(self) -> list[str]:
        e = self.e
        kind = e.among(["v3", "v3", "v2", "v4", "m22", "m33", "m44", "q", "x", "sv", "S", "S"])
        known = [v for v in e.scope if v.kind == kind and v.shape is None and (v.varying or not e.divergent)]
        if known and e.chance(0.6):
            v = e.among(known)
            with e.changed(uniform=e.uniform or not v.varying):
                return [f"{v.name} = {e.expr(kind, None, 2)}"]
        varying = self.varying()
        with e.changed(uniform=e.uniform or not varying):
            value = e.expr(kind, None, 2)
        return [f"{self.bind(kind, None, varying)} = {value}"]

    def write_member(self) -> list[str]:
        e = self.e
        places = {"v3": "[{1}]", "v2": "[1]", "v4": "[-1]", "m33": "[{1}, 2]", "m22": "[0, {1}]", "S": ".mass"}
        known = [v for v in e.scope if v.kind in places and v.shape is None and (v.varying or not e.divergent)]
        if not known:
            return self.assign_composite() if e.setting.composites else self.assign_scalar()
        v = e.among(known)
        place = e.among([".mass", ".at[0]"]) if v.kind == "S" else places[v.kind]
        with e.changed(uniform=e.uniform or not v.varying):
            return [e.filled(f"{v.name}{place} {e.among(['=', '+='])} tg.sin({{r}})", None, 1)]

    def tile_kind(self) -> tuple[str, Shape]:
        e = self.e
        kind = e.among(["r"] * 6 + ["i", "b"] + (["v3", "v2", "m22", "S", "q"] if e.setting.composites else []))
        n = e.number(1, 3)
        shapes = [self.main, self.main, self.main, (n, n), (e.number(1, 5),)]
        if e.setting.lanes:
            shapes += [(self.lanes,)] * 2
        shape = e.among(shapes)
        if kind not in "rib":
            shape = e.among([(e.number(1, 4),), (2, 2), (3,)])
        return kind, shape

    def assign_tile(self) -> list[str]:
        e = self.e
        known = [v for v in e.tiles() if v.assignable and v.kind in ("r", "v3", "v2") and v.name not in self.aliased]
        with e.changed(uniform=True):
            if known and e.chance(0.5):
                v = e.among(known)
                value = e.expr(v.kind, v.shape, 2)
                if re.fullmatch(r"t\d+", value) or is_view(value):
                    value = f"{atom(value)}.copy()"
                return [f"{v.name} = {f'tg.sin({value})' if self.loops and v.kind == 'r' else value}"]
            kind, shape = self.tile_kind()
            value = e.expr(kind, shape, 3)
        if re.fullmatch(r"t\d+", value) or is_view(value):
            value = f"tg.copy({value})"
        return [f"{self.bind(kind, shape)} = {value}"]

    def real_tile(self) -> Var:
        """A tile of reals to write to."""
        found = [v for v in self.e.tiles("r") if v.assignable]
        return found[int(self.e.rng.integers(len(found)))]

    def update_tile(self) -> list[str]:
        e, v = self.e, self.real_tile()
        form = e.rare(
            (
                "{v} += {r~} * 0.5",
                "{v} -= {r~}",
                "{v} *= tg.cos({r~})",
                "{v} /= 2.0 + tg.sin({r~})",
                "{v} %= 1.5137",
                "{v} //= 1.5137",
            )
        )
        with e.changed(uniform=True):
            return [e.filled(form.replace("{v}", v.name), v.shape, 1)]

    def operator_in_place(self) -> list[str]:
        """`c += a @ b`, and the in-place operators of integers."""
        e = self.e
        ints = e.tiles("i")
        with e.changed(uniform=True):
            if ints and e.chance(0.3):
                v = e.among(ints)
                op = e.among(["+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>=", "//=", "%="])
                operand = e.among(["1", "2", "3"]) if op[0] in "</>%" else atom(e.expr("i", v.shape, 1))
                return [f"{v.name} {op} {operand}"]
            square = [v for v in e.tiles("r") if v.shape is not None and len(v.shape) == 2]
            if not square:
                return self.update_tile()
            v = e.among(square)
            assert v.shape is not None
            k = e.number(1, 3)
            a, b = e.expr("r", (v.shape[0], k), 1), e.expr("r", (k, v.shape[1]), 1)
            if e.chance(0.5):
                return [f"{v.name} += {atom(a)} @ {atom(b)}"]
            return [
                f"tg.tile_matmul({a}, {b}, {v.name}, alpha={e.expr('r', None, 1)}, beta={e.among(['0.0', '0.5', '1.0'])})"
            ]

    def part_of(self, shape: Shape) -> tuple[str, Shape]:
        """A slice of a tile, and its shape."""
        e = self.e
        parts: list[str] = []
        left: list[int] = []
        for k, n in enumerate(shape):
            if e.chance(0.25) and not (k == len(shape) - 1 and not left):
                parts.append(str(e.number(-n, n - 1)))
                continue
            start = e.number(0, n - 1)
            step = e.among([1, 1, 2])
            reverse = e.chance(0.15)
            parts.append("::-1" if reverse else f"{start}::{step}" if step > 1 else f"{start}:")
            left.append(n if reverse else -(-(n - start) // step))
        return f"[{', '.join(parts)}]", tuple(left)

    def write_slice(self) -> list[str]:
        e, v = self.e, self.real_tile()
        assert v.shape is not None
        place, shape = self.part_of(v.shape)
        with e.changed(uniform=True):
            op = e.among(["=", "+=", "*=", "-="])
            value = e.expr("r", e.broadcastable(shape), 2)
            return [f"{v.name}{place} {op} tg.sin({value})"]

    def write_element(self) -> list[str]:
        e, v = self.e, self.real_tile()
        assert v.shape is not None
        where = ", ".join(e.index(n) for n in v.shape)
        return [f"{v.name}[{where}] {e.among(['=', '+=', '-='])} tg.sin({e.expr('r', None, 2)})"]

    def alias(self) -> list[str]:
        e, v = self.e, self.real_tile()
        assert v.shape is not None
        place, shape = self.part_of(v.shape)
        size = math.prod(v.shape)
        forms: list[tuple[str, Shape]] = [
            (v.name, v.shape), (f"{v.name}.T", v.shape[::-1]), (f"{v.name}{place}", shape), (f"{v.name}{place}", shape),
            (f"tg.tile_reshape({v.name}, {(size,)})", (size,)),
        ]  # fmt: skip
        value, shape = e.among(forms)
        name = self.bind("r", shape)
        self.aliased |= {v.name, name}
        return [f"{name} = {value}"]

    def in_place(self) -> list[str]:
        """Functions that change their argument."""
        e = self.e
        v = self.real_tile()
        assert v.shape is not None
        with e.changed(uniform=True):

            def same() -> str:
                return e.expr("r", v.shape, 1)

            n = e.number(1, 3)
            axis = e.number(-len(v.shape), len(v.shape) - 1)
            new = self.fresh("r", (n, n))
            right = self.fresh("r", (n,))
            norm = e.among(["None", '"ortho"', '"forward"'])
            mild = self.mild(n)
            forms: dict[str, Callable[[], list[str]]] = {
                "tg.tile_sort": lambda: [f"tg.tile_sort({v.name}, axis={axis}, descending={e.chance(0.5)})"],
                "tg.tile_axpy": lambda: [f"tg.tile_axpy({e.expr('r', None, 1)}, {same()}, {v.name})"],
                "tg.tile_assign": lambda: [f"tg.tile_assign({v.name}, {same()})"],
                "tg.tile_assign 2": lambda: self.assign_part(v),
                "tg.tile_sort 2": lambda: [
                    f"{new} = {same()} * 1.0",
                    f"tg.tile_sort({v.name}, {new}, axis={axis})",
                    f"{v.name} += {new} * 0.3",
                ],
            }
            if self.dtype in ("float64", "float32"):
                forms |= {
                    "tg.tile_cholesky_inplace": lambda: [
                        f"{new} = {mild}", f"{new} = {new} @ {new}.T", f"tg.tile_cholesky_inplace({new}{e.among(['', ', fill_mode=' + repr('upper')])})",
                        *self.keep(new, "r", (n, n))],
                    "tg.tile_lower_solve_inplace": lambda: [
                        f"{new} = tg.tile_tril({mild})", f"{right} = {e.expr('r', (n,), 1)} * 1.0",
                        f"tg.tile_lower_solve_inplace({new}, {right})", *self.keep(right, "r", (n,))],
                    "tg.tile_upper_solve_inplace": lambda: [
                        f"{new} = tg.tile_triu({mild})", f"{right} = {e.expr('r', (n,), 1)} * 1.0",
                        f"tg.tile_upper_solve_inplace({new}, {right})", *self.keep(right, "r", (n,))],
                    "tg.tile_cholesky_solve_inplace": lambda: [
                        f"{new} = {mild}", f"{new} = tg.tile_cholesky({new} @ {new}.T)", f"{right} = {e.expr('r', (n,), 1)} * 1.0",
                        f"tg.tile_cholesky_solve_inplace({new}, {right})", *self.keep(right, "r", (n,))],
                }  # fmt: skip
                if e.setting.composites:
                    for name in ("tg.tile_fft", "tg.tile_ifft"):
                        forms[name] = lambda name=name: [  # type: ignore[misc]
                            f"{new} = {e.expr('v2', (n, 3), 1)} * 0.5", f"{name}({new}, axis={e.number(-2, 1)}, norm={norm})",
                            *self.keep(new, "v2", (n, 3))]  # fmt: skip
            return forms[e.rare(list(forms))]()

    def mild(self, n: int) -> str:
        """A well-conditioned matrix."""
        return self.e.filled(f"tg.tile_diag_add(tg.sin({{r}}) * 0.3, tg.tile_full({n}, Real(2.0)))", (n, n), 1)

    def keep(self, name: str, kind: str, shape: Shape) -> list[str]:
        """Bring a name into scope that statements have bound."""
        self.e.scope.append(Var(name, kind, shape))
        return []

    def assign_part(self, v: Var) -> list[str]:
        e = self.e
        assert v.shape is not None
        part = tuple(e.number(1, n) for n in v.shape)
        offset = tuple(e.number(0, n - k) for n, k in zip(v.shape, part, strict=True))
        return [f"tg.tile_assign({v.name}, {e.expr('r', part, 1)}, {offset})"]

    def several_results(self) -> list[str]:
        e = self.e
        n = e.number(1, 3)
        with e.changed(uniform=True):
            mild = self.mild(n)
            forms: dict[str, tuple[str, tuple[tuple[str, Shape], ...]]] = {
                "tg.tile_topk": (
                    f"{{0}}, {{1}} = tg.tile_topk({e.expr('r', (n, 3), 1)}, 2, largest={e.chance(0.5)})",
                    (("r", (n, 2)), ("i", (n, 2))),
                )
            }
            if self.dtype in ("float64", "float32"):
                solve = f"{{2}} = tg.tile_lu_solve({{0}}, {{1}}, {e.expr('r', (n,), 1)})"
                forms |= {
                    "tg.tile_lu": (f"{{0}}, {{1}} = tg.tile_lu({mild})", (("r", (n, n)), ("i", (n,)))),
                    "tg.tile_qr": (f"{{0}}, {{1}} = tg.tile_qr({mild})", (("r", (n, n)), ("r", (n, n)))),
                    "tg.tile_slogdet": (f"{{0}}, {{1}} = tg.tile_slogdet({mild})", (("r", (1,)), ("r", (1,)))),
                    "tg.tile_lu_solve": (
                        f"{{0}}, {{1}} = tg.tile_lu({mild})\n{solve}", (("r", (n, n)), ("i", (n,)), ("r", (n,))),
                    ),
                }  # fmt: skip
            text, results = forms[e.rare([f for f in forms if not (e.setting.plain and "lu" in f)])]
        names = [self.fresh(kind, shape) for kind, shape in results]
        e.scope += [Var(name, kind, shape) for name, (kind, shape) in zip(names, results, strict=True)]
        return text.format(*names).split("\n")

    # memory

    def out(self, kind: str, shape: Shape) -> str:
        """A new array that the kernel writes."""
        name = f"o{len(self.outputs)}_{self.name}"
        self.outputs[name] = (kind, shape)
        return name

    def shared(self, name: str, kind: str, shape: Shape) -> str:
        whole = f"{name}_{self.name}"
        self.outputs[whole] = (kind, shape)
        return whole

    def atomic(self) -> list[str]:
        e = self.e
        place, value = e.index(5), e.expr("r", None, 2)
        forms = [
            "{acc}[{k}] += {s}",
            "{acc}[{k}] -= {s}",
            "tg.atomic_add({acc}, {k}, {s})",
            "tg.atomic_sub({acc}, {k}, {s})",
        ]
        # old values and extremes in one kernel have no gradient
        if self.extremes:
            forms += ["tg.atomic_max({top}, {k}, {s})", "tg.atomic_min({low}, {k}, {s})"]
        else:
            forms += [
                "{new} = tg.atomic_add({old}, {k}, {s})",
                "{new} = tg.atomic_sub({old}, {k}, {s})",
                "{new} = tg.atomic_exch({old}, {k}, {s})",
            ]
        ints = ["tg.atomic_and({cnt}, {k}, {i})", "tg.atomic_or({cnt}, {k}, {i})", "tg.atomic_xor({cnt}, {k}, {i})",
                "tg.atomic_add({cnt}, {k}, {i})", "tg.atomic_cas({cnt}, {k}, {i}, 7)", "tg.atomic_max({cnt}, {k}, {i})",
                "tg.atomic_exch({cnt}, {k}, {i})"]  # fmt: skip
        form = e.rare(forms + ints)
        tile = e.cooperative and e.chance(0.3)
        if tile and form.startswith("tg.atomic_add"):
            with e.changed(uniform=True):
                acc = self.shared("acc", "r", (5,))
                if e.chance(0.3):
                    e.seen.wrote("tg.tile_atomic_add_indexed")
                    return [
                        f"tg.tile_atomic_add_indexed({acc}, {atom(e.expr('i', (3,), 1))} % 6, {e.expr('r', (3,), 2)}, offset={e.number(-1, 1)})"
                    ]
                return [f"tg.tile_atomic_add({acc}, {e.expr('r', (4,), 2)}, offset={e.number(-1, 2)})"]
        words = {
            "acc": self.shared("acc", "r", (5,)) if "{acc}" in form else "", "k": place, "s": value,
            "old": self.shared("old", "r", (5,)) if "{old}" in form else "",
            "top": self.shared("top", "r", (5,)) if "{top}" in form else "",
            "low": self.shared("low", "r", (5,)) if "{low}" in form else "",
            "cnt": self.shared("cnt", "i", (5,)) if "{cnt}" in form else "",
            "i": e.expr("i", None, 1),
            "new": "",
        }  # fmt: skip
        if "{new}" in form:
            if self.e.uniform or (self.form == "lanes" and not e.setting.lanes):
                return self.assign_scalar()
            words["new"] = self.bind("r", None, e.setting.lanes)
        return [form.format(**words)]

    def store(self) -> list[str]:
        """A tile to an array, out of which it comes again."""
        e, v = self.e, self.real_tile()
        assert v.shape is not None
        if len(v.shape) > 3 or self.form == "lanes" or e.setting.lanes:
            return self.update_tile()
        extents = tuple(n + e.number(0, 2) for n in v.shape)
        array = self.out("r", (self.blocks, *extents))
        row = f"{array}[g]"
        offset = tuple(e.number(-1, 1) for _ in v.shape)
        lines = [f"tg.tile_store({row}, {v.name}, offset={offset})"]
        if e.chance(0.3):
            e.seen.wrote("tg.tile_store_indexed")
            places = f"tg.tile_astype(tg.tile_arange({v.shape[0]}), int) * 1"
            lines = [f"tg.tile_store_indexed({row}, {places}, {v.name}, axis=0)"]
        if e.chance(0.6):
            lines.append(
                f"{self.bind('r', v.shape)} = tg.tile_load({row}, shape={v.shape}, offset={tuple(e.number(-1, 1) for _ in v.shape)})"
            )
        return lines

    def memory(self) -> list[str]:
        """Reads and writes of arrays that the kernel reads elsewhere; each lane its own elements."""
        e = self.e
        if self.form != "memory":
            own = self.shared("own", "r", (self.grid_lanes,) if self.form == "lanes" else (self.blocks, self.lanes))
            place = f"{own}[i]" if self.form == "lanes" else f"{own}[g, i]"
            if e.chance(0.5):
                return [f"{place} {e.among(['=', '+=', '*='])} {e.expr('r', None, 2)}"]
            value = e.expr("r", None, 1)
            return [f"{self.bind('r', None, True)} = {place} * 0.5 + {value}"]
        i, j, k = e.number(-1, 2), e.number(0, 2), e.number(0, 3)
        with e.changed(uniform=True):
            forms = (
                "tg.tile_store(x, {T}, offset=({i}, {j}))", "tg.tile_store(x[m[{k}]], {F}, offset={j})",
                "x[{k}, {j}] = x[{j}, {k}] * 0.5 + {s}", "x[{k}, m[{j}]] = tg.sin({s})", "x[{k}, {j}] *= tg.cos({s})",
                "tg.tile_store(x, {T}.T * 0.5, offset=({j}, {i}))",
                "m[{k}] = (m[{j}] + {n}) % 4", "tg.tile_store_indexed(x, tg.tile_load(m, shape=2) + {n} - m[0] % 2 * 0, {T}, axis=0)",
            )  # fmt: skip
            form = e.rare([f for f in forms if "indexed" not in f])
            words = {"i": i, "j": j, "k": k, "n": e.number(1, 3), "s": e.expr("r", None, 2)}
            words["T"] = atom(e.expr("r", (2, 3), 2)) if "{T}" in form else ""
            words["F"] = e.expr("r", (4,), 2) if "{F}" in form else ""
        return [form.format(**words)]

    # lanes

    def scatter(self) -> list[str]:
        e, v = self.e, self.real_tile()
        assert v.shape is not None
        if len(v.shape) > 4:
            return self.update_tile()
        where = ", ".join(e.index(n) for n in v.shape)
        which = e.among(["True", f"i % {e.number(1, 3)} == 0", e.expr("b", None, 1)])
        name = e.rare(("tg.tile_scatter_add", "tg.tile_scatter_masked"))
        return [f"{name}({v.name}, {where}, {e.expr('r', None, 2)}, {which})"]

    def stack(self) -> list[str]:
        e = self.e
        name, value, slot = self.fresh("b"), self.fresh("r"), self.fresh("i")
        name = name.replace("c", "stack")
        lines = [
            f"{name} = tg.tile_stack({e.number(1, 6)}, Real)",
            f"tg.tile_stack_push({name}, {e.expr('r', None, 2)}, {e.expr('b', None, 1)})",
        ]
        if e.chance(0.2):
            lines.append(f"tg.tile_stack_clear({name})")
        if e.chance(0.5):
            lines.append(f"tg.tile_stack_push({name}, {e.expr('r', None, 1)})")
        lines.append(f"{value}, {slot} = tg.tile_stack_pop({name})")
        count = self.bind("i", None)
        lines.append(f"{count} = tg.tile_stack_count({name})")
        e.scope += [Var(value, "r", None, True), Var(slot, "i", None, True)]
        return lines

    def untile(self) -> list[str]:
        e = self.e
        with e.changed(uniform=True):
            value = e.expr("r", (self.lanes,), 2)
        e.seen.wrote("tg.untile")
        return [f"{self.bind('r', None, True)} = tg.untile({value})"]

    def random(self) -> list[str]:
        """Numbers that depend on a state, which is advanced."""
        e = self.e
        state = self.fresh("i").replace("k", "rng")
        varying = self.varying()
        where = ", i" if varying else ""
        draws = ["Real(tg.randf({r})) * 0.5", "Real(tg.randn({r})) * 0.3", "Real(tg.randi({r}, 0, 5)) * 0.2",
                 "Real(tg.randu({r}, tg.uint32(1), tg.uint32(4))) * 0.2", "Real(tg.randf({r}, -1.0, 1.0))", "Real(tg.poisson({r}, 2.5)) * 0.1"]  # fmt: skip
        if e.setting.composites:
            draws += [f"Real(tg.{f}({{r}})[1])" for f in (
                "sample_unit_ring", "sample_unit_disk", "sample_unit_sphere_surface", "sample_unit_sphere", "sample_unit_square",
                "sample_unit_hemisphere_surface", "sample_unit_hemisphere", "sample_unit_cube", "sample_triangle")]  # fmt: skip
        first, second = e.rare(draws), e.rare(draws)
        name = self.bind("r", None, varying)
        return [
            f"{state} = tg.rand_init({e.number(0, 9)}{where})",
            f"{name} = {first.format(r=state)}",
            f"{name} += {second.format(r=state)}",
        ]

    # control flow

    def condition(self, divergent: bool) -> str:
        e = self.e
        with e.changed(uniform=not divergent, fuel=min(e.fuel, 3)):
            return e.expr("b", None, 2)

    def splits(self) -> bool:
        """Whether the next control flow differs between lanes."""
        return self.e.divergent or (self.e.setting.lanes and self.e.chance(0.6))

    def branch(self, depth: int) -> list[str]:
        e = self.e
        divergent = self.splits()
        lines = [f"if {self.condition(divergent)}:"]
        with e.changed(divergent=divergent):
            lines += self.block(depth - 1, "    ", e.number(1, 2))
            if e.chance(0.3):
                lines += [f"elif {self.condition(divergent)}:", *self.block(depth - 1, "    ", 1)]
            if e.chance(0.6):
                lines += ["else:", *self.block(depth - 1, "    ", e.number(1, 2))]
        return lines

    def body(self, depth: int, divergent: bool, counter: str | None) -> list[str]:
        e = self.e
        with e.changed(divergent=divergent):
            self.loops.append(divergent)
            before = len(e.scope)
            if counter:
                e.scope.append(Var(counter, "i", None, divergent, assignable=False))
            lines = self.block(depth - 1, "    ", e.number(1, 3))
            del e.scope[before:]
            self.loops.pop()
        return lines

    def for_loop(self, depth: int) -> list[str]:
        e = self.e
        divergent = self.splits()
        counter = self.fresh("i")
        bounds = ["n", "2", "0, n", "n, 0, -1", "0, 2 * n, 2", "3, 0, -2", "1, n + 1", "n - 3, 1"]
        if divergent:
            bounds += ["i % 3", "m[i % 6]", "i % 3, -1, -1", "0, i, 2"]
        if not divergent and e.chance(0.15):
            return [f"for {counter} in tg.static(range({e.number(1, 3)})):", *self.static_body(depth, counter)]
        text = f"for {counter} in range({e.rare(bounds)}):"
        lines = [text, *self.body(depth, divergent, counter)]
        if e.chance(0.1):
            with e.changed(divergent=divergent):
                lines += ["else:", *self.block(depth - 1, "    ", 1)]
        return lines

    def static_body(self, depth: int, counter: str) -> list[str]:
        e, before = self.e, len(self.e.scope)
        e.scope.append(Var(counter, "i", None, assignable=False))
        held, self.loops = self.loops, []
        lines = self.block(depth - 1, "    ", 1)
        self.loops = held
        del e.scope[before:]
        return lines

    def while_loop(self, depth: int) -> list[str]:
        divergent = self.splits()
        counter = self.fresh("i")
        start = self.e.among(["n", "2"] + (["i % 3", "m[i % 6]"] if divergent else []))
        with self.e.changed(divergent=divergent):
            more = f" and {atom(self.condition(divergent))}" if self.e.chance(0.3) else ""
        # the counter goes down first, so that `continue` does not skip it
        return [
            f"{counter} = {start}",
            f"while {counter} > 0{more}:",
            f"    {counter} -= 1",
            *self.body(depth, divergent, counter),
        ]

    def endless_loop(self, depth: int) -> list[str]:
        divergent = self.splits()
        counter = self.fresh("i")
        stop = "n" if not divergent else self.e.among(["n", "i % 3"])
        return [f"{counter} = 0", "while True:", f"    if {counter} >= {stop}:", "        break", f"    {counter} += 1",
                *self.body(depth, divergent, counter)]  # fmt: skip

    def leave_loop(self) -> list[str]:
        e = self.e
        divergent = self.loops[-1]
        if e.divergent and not divergent:
            return self.update_scalar()
        word = e.among(["break", "continue"])
        return [f"if {self.condition(divergent)}:", f"    {word}"]

    def carried_tuple(self) -> list[str]:
        e = self.e
        counter, pair = self.fresh("i"), self.fresh("b").replace("c", "u")
        if e.cooperative and e.chance(0.5):
            with e.changed(uniform=True):
                first, second = e.expr("r", self.main, 1), e.expr("r", None, 1)
            name, varying = self.bind("r", self.main), False
            lines = [f"{pair} = ({first} * 1.0, {second})", f"for {counter} in range(n):",
                     f"    {pair} = (tg.sin({pair}[0]) * {pair}[1], tg.cos({pair}[1]))", f"{name} = {pair}[0] * 1.0"]  # fmt: skip
            return lines
        varying = self.e.setting.lanes
        first, second = e.expr("r", None, 1), e.expr("r", None, 1)
        name = self.bind("r", None, varying)
        return [f"{pair} = ({first}, {second})", f"for {counter} in range(n):", f"    {pair} = ({pair}[1], tg.sin({pair}[0]) + {pair}[1] * 0.5)",
                f"{name} = {pair}[0] - {pair}[1]"]  # fmt: skip

    # the whole

    @property
    def grid_lanes(self) -> int:
        return self.blocks * self.lanes - (self.lanes - 1) // 2

    def write(self) -> KernelText:
        e = self.e
        lines = self.head()
        for _ in range(e.number(3, 7)):
            lines += self.statement(2)
            if e.setting.lanes and e.chance(0.04):
                lines += [f"if {self.condition(True)}:", "    return"]
                e.left = True
            elif e.chance(0.03):
                lines += [f"if n > {e.number(1, 3)}:", "    return"]
        lines += self.ending()
        body = "\n".join(f"    {line}" for line in lines)
        arrays = {name: of for name, of in (e.setting.inputs | self.outputs).items() if re.search(rf"\b{name}\b", body)}
        has_n = bool(re.search(r"\bn\b", body))
        parameters = [f"{name}: {annotation(*of)}" for name, of in arrays.items()] + (["n: int"] if has_n else [])
        text = f"@tg.kernel\ndef {self.name}({', '.join(parameters)}):\n{body}\n"
        inputs = ", ".join([*arrays, *([str(e.number(0, 3))] if has_n else [])])
        how = "launch" if self.form == "lanes" else "launch_tiled"
        dim = self.grid_lanes if self.form == "lanes" else self.blocks
        launch = f"{how}({self.name}, {dim}, [{inputs}], {self.lanes})"
        return KernelText(self.name, text, arrays, has_n, launch, set(e.called))

    def head(self) -> list[str]:
        e = self.e
        e.scope.append(Var("n", "i", None, assignable=False))
        lines = []
        if self.form == "lanes":
            lines.append("i = tg.tid()")
        elif self.form == "tiled lanes":
            lines.append("g, i = tg.tid()")
        else:
            lines.append("g = tg.tid()")
        if self.form != "lanes":
            e.scope.append(Var("g", "i", None, assignable=False))
        with e.changed(uniform=True):
            tile = e._load("x", self.main) if e.chance(0.7) else e.expr("r", self.main, 2)
        lines.append(f"{self.bind('r', self.main)} = tg.sin({tile})")
        if e.setting.lanes:
            e.scope.append(Var("i", "i", None, True, assignable=False))
            lines.append(f"{self.bind('r', None, True)} = x[i % 4, i % 6] * 0.9 + w[i % 7]")
        with e.changed(uniform=True):
            value = e._scalar_leaf("r")
        lines.append(f"{self.bind('r', None)} = {value} + 0.1")
        return lines

    def ending(self) -> list[str]:
        """Everything that was computed goes out."""
        return [line for v in self.e.scope if v.assignable for line in self.emit(v)]

    def emit(self, v: Var) -> list[str]:
        kind = v.kind if v.kind not in ("b",) else "i"
        value = v.name
        if v.shape is not None:
            if v.kind == "b":
                value = f"tg.tile_astype({value}, int)"
            if len(v.shape) > 2:
                value = f"tg.tile_reshape({value}, {(math.prod(v.shape),)})"
            shape = v.shape if len(v.shape) <= 2 else (math.prod(v.shape),)
            if self.form == "lanes":
                if v.kind not in "r":
                    return []
                return [f"tg.tile_atomic_add({self.out('r', shape)}, {value})"]
            return [f"tg.tile_store({self.out(kind, (self.blocks, *shape))}[g], {value})"]
        value = f"int({value})" if v.kind == "b" else value
        if self.form == "lanes":
            return [f"{self.out(kind, (self.grid_lanes,))}[i] = {value}"]
        if v.varying:
            return [f"{self.out(kind, (self.blocks, self.lanes))}[g, i] = {value}"]
        return [f"{self.out(kind, (self.blocks,))}[g] = {value}"]


def is_view(text: str) -> bool:
    return bool(re.match(r"tg\.tile_(view|reshape|transpose|squeeze|broadcast)\(", text)) or bool(
        re.search(r"(\]|\.T|\.reshape\(.*\))$", text)
    )


def annotation(kind: str, shape: Shape) -> str:
    return f"{ANNOTATIONS[len(shape)]}[{rules.KINDS[kind]}]"


def spec(kind: str, shape: Shape, filled: bool = True) -> str:
    sizes = "".join(f"{n}, " for n in shape)
    if kind == "i":
        return f"whole({sizes}below=4)" if filled else f"zeros({sizes}kind=tg.int32)"
    return f"{'real' if filled else 'zeros'}({sizes}kind={rules.KINDS[kind]})"


def preamble(dtype: str, composites: bool) -> str:
    lines = [f"Real = tg.{dtype}"]
    if composites:
        s = rules.SUFFIXES[dtype]
        lines.append(
            f"Vec2, Vec3, Vec4, Mat22, Mat33, Mat44 = tg.vec2{s}, tg.vec3{s}, tg.vec4{s}, tg.mat22{s}, tg.mat33{s}, tg.mat44{s}"
        )
        lines.append(f"Quat, Xform, Spatial = tg.quat{s}, tg.transform{s}, tg.spatial_vector{s}")
        lines.append("@tg.struct\nclass Body:\n    mass: Real\n    at: Vec3\n    count: int")
    return "\n".join(lines) + "\n"


def shape_of(rng: np.random.Generator) -> Shape:
    """The shape of most tiles of a program: all ranks, few elements."""
    rank = int(rng.choice([1, 2, 3, 4, 5, 6, 7, 8], p=[0.22, 0.4, 0.18, 0.08, 0.04, 0.03, 0.03, 0.02]))
    while True:
        shape = tuple(int(n) for n in rng.integers(1, 6 if rank <= 2 else 4 if rank <= 4 else 3, rank))
        if math.prod(shape) <= 32:
            return shape


def function_texts(names: set[str], make: Callable[[], Expressions]) -> list[str]:
    texts = []
    for name, template in rules.FUNCTIONS.items():
        if name in names:
            e = make()
            scalars = {"f_tile": ["a"], "f_tile_writes": ["a"], "f_struct": ["a"], "f_scalar": ["a", "b"]}.get(
                name, ["a"]
            )
            e.scope = [Var(s, "r") for s in scalars]
            if name == "f_vector":
                e.scope.append(Var("u", "v3"))
            texts.append(e.filled(template, None, 2))
    return texts


def program(rng: np.random.Generator, seen: Coverage) -> str:
    """The text of a random program."""
    dtype = str(rng.choice(DTYPES))
    plain = dtype in ("float64", "float32") and bool(rng.random() < 0.3)
    composites = dtype in rules.SUFFIXES and not plain and bool(rng.random() < 0.8)
    inputs = {k: v for k, v in INPUTS.items() if composites or v[0] in "ri"}
    kernels, called = [], set()
    for k in range(int(rng.choice([1, 1, 1, 2]))):
        kernels.append(kernel(rng, seen, f"k{k}", dtype, composites, plain, inputs))
        called |= kernels[-1].functions

    def inside() -> Expressions:
        lean = Setting(dtype, {}, False, 1, composites)
        return Expressions(rng, seen, lean, divergent=True, fuel=4, inside_function=True)

    arrays = {name: of for k in kernels for name, of in k.arrays.items()}
    specs = [f"    {name!r}: {spec(*of, filled=True)}," for name, of in arrays.items()]
    actions = plan(rng, kernels, arrays)
    parts = [
        preamble(dtype, composites), *function_texts(called, inside), *(k.text for k in kernels),
        "ARRAYS = {\n" + "\n".join(specs) + "\n}\n",
        f"def program({', '.join(arrays)}):\n" + "".join(f"    {a}\n" for a in actions),
    ]  # fmt: skip
    return "\n".join(parts)


def kernel(
    rng: np.random.Generator,
    seen: Coverage,
    name: str,
    dtype: str,
    composites: bool,
    plain: bool,
    inputs: dict[str, tuple[str, Shape]],
) -> KernelText:
    forms = ["blocks", "blocks", "memory"] if plain else ["blocks", "blocks", "lanes", "lanes", "tiled lanes", "memory"]
    form = str(rng.choice(forms))
    lanes = int(rng.choice([1, 2, 4, 5, 8]))
    setting = Setting(dtype, inputs, form in ("lanes", "tiled lanes"), lanes, composites, plain)
    e = Expressions(rng, seen, setting, fuel=int(rng.integers(12, 40)))
    blocks = 1 if form == "memory" else int(rng.integers(1, 4))
    return Writer(e, name, form, blocks, lanes, main=shape_of(rng), extremes=bool(rng.random() < 0.3)).write()


def plan(rng: np.random.Generator, kernels: list[KernelText], arrays: dict[str, tuple[str, Shape]]) -> list[str]:
    """Launches, with copies and fills of arrays in between."""
    actions = [viewed(rng, k) for k in kernels]
    if rng.random() < 0.5:
        return actions
    reals = [(name, shape) for name, (kind, shape) in arrays.items() if kind == "r"]
    between: list[str] = []
    for _ in range(int(rng.integers(1, 3))):
        a, shape = reals[int(rng.integers(len(reals)))]
        same = [b for b, s in reals if s == shape and b != a]
        flat = [b for b, s in reals if len(s) == 1 and len(shape) == 1 and b != a]
        way = rng.random()
        if same and way < 0.4:
            between.append(f"copy({a}, {same[int(rng.integers(len(same)))]})")
        elif flat and way < 0.7:
            b = flat[int(rng.integers(len(flat)))]
            k = min(shape[0], arrays[b][1][0])
            between.append(f"copy({a}[{shape[0] - k}:], {b}[:{k}])")
        elif way < 0.85:
            between.append(f"fill({a}, 0.5)")
        else:
            between.append(f"fill({a}[:1], 0.25)")
    again = [viewed(rng, kernels[int(rng.integers(len(kernels)))])]
    return actions + between + again


def viewed(rng: np.random.Generator, kernel: KernelText) -> str:
    """A launch, in which some arguments are views, or one array twice."""
    text = kernel.launch
    twice: set[str] = set()
    made = [(name, of) for name, of in kernel.arrays.items() if re.match(r"o\d", name)]
    same = [(a, b) for k, (a, x) in enumerate(made) for b, y in made[:k] if x == y]
    # blocks of `launch` would write the same elements in no particular order
    if same and text.startswith("launch_tiled") and rng.random() < 0.15:
        twice = set(same[int(rng.integers(len(same)))])
        text = re.sub(rf"\b{max(twice)}\b", min(twice), text)
    for name, (_, shape) in kernel.arrays.items():
        if name in twice:
            continue
        if rng.random() < 0.05:
            text = re.sub(rf"\b{name}\b", f"{name}[::-1]", text)
        elif len(shape) == 2 and rng.random() < 0.05:
            text = re.sub(rf"\b{name}\b", f"{name}[:, ::-1]", text)
    return text
