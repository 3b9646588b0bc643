"""What random expressions are made of: templates whose holes are filled with expressions of a kind.

`{r}` is a hole for a real of the shape of the result, `{i}` for an integer, `{b}` for a truth value, `{v3}` and so on
for the composite kinds of `KINDS`. A suffix changes the shape: `{r~}` is broadcast against the others, `{r.}` is a
scalar that is the same for the whole block. `{c}` is a literal, `{e}` one that keeps numbers off the places where functions jump, `{W}` an integer dtype (the same one everywhere in a
template), `{ax}` an axis of the result, `{tf}` True or False.
Functions are smooth and bounded on the numbers that programs hold, so that differences mean something.
"""

# ruff: noqa: E501 (the templates of one line belong together)

from __future__ import annotations

#: codes of element types, and how programs name them
KINDS = {
    "r": "Real", "i": "int", "b": "bool", "v2": "Vec2", "v3": "Vec3", "v4": "Vec4", "m22": "Mat22", "m33": "Mat33",
    "m44": "Mat44", "q": "Quat", "x": "Xform", "sv": "Spatial", "S": "Body",
}  # fmt: skip
COMPOSITES = tuple(k for k in KINDS if k not in "rib")
#: how each float dtype ends the names of composite types; bfloat16 has no names
SUFFIXES = {"float64": "d", "float32": "f", "float16": "h"}
WHOLE = ("tg.int8", "tg.int16", "tg.int64", "tg.uint8", "tg.uint16", "tg.uint32", "tg.uint64")

#: scalars and tiles alike
POINTWISE: dict[str, tuple[str, ...]] = {
    "r": (
        "{r} + {r~}", "{r} - {r~}", "{r} * {r~} * 0.5", "-{r} + {c}", "{r} / (2.0 + tg.sin({r}))",
        "tg.add({r}, {r})", "tg.sub({r}, {r})", "tg.mul({r}, {r}) * 0.5", "tg.neg({r})",
        "tg.div({r}, 1.5 + tg.cos({r}) * 0.25)", "({r} + {e}) // (2.5 + tg.sin({r}))", "({r} + {e}) % (1.5 + tg.sin({r}) * 0.25)",
        "tg.floordiv({r} + {e}, 2.5 + tg.cos({r}))", "tg.mod({r} + {e}, 1.75 + tg.sin({r}) * 0.25)", "tg.fmod({r} + {e}, 1.25)",
        "tg.fmod({r} + {e}, 1.5 + tg.cos({r}) * 0.25)", "tg.abs({r})", "abs({r})", "tg.sign({r} + {e})", "tg.copysign({r}, {r} + {e})",
        "tg.min({r}, {r~})", "tg.max({r}, {r~})", "tg.minimum({r}, {r})", "tg.maximum({r}, {r}, {r})", "min({r}, {r})",
        "tg.clamp({r}, -0.5, 0.75)", "tg.clamp({r}, {r} - 1.0, {r} + 0.5)", "tg.where({b}, {r}, {r})",
        "tg.step({r} + {e})", "tg.nonzero({r} + {e})", "tg.floor({r} + {e})", "tg.ceil({r} + {e})", "tg.trunc({r} + {e})", "tg.rint({r} + {e})",
        "tg.round({r} + {e})", "tg.frac({r} + {e})", "tg.exp(tg.sin({r}))", "tg.exp2(tg.cos({r}))", "tg.expm1(tg.sin({r}))",
        "tg.log(1.5 + tg.sin({r}))", "tg.log2(1.5 + tg.cos({r}))", "tg.log10(2.5 + tg.sin({r}))",
        "tg.log1p(0.5 * tg.sin({r}))", "tg.sqrt(1.5 + tg.cos({r}))", "tg.rsqrt(1.5 + tg.sin({r}))",
        "tg.cbrt(1.5 + tg.sin({r}))", "tg.hypot({r}, 1.0 + {r} * {r})", "tg.pow(1.5 + tg.sin({r}), tg.cos({r}))",
        "(1.5 + tg.cos({r})) ** tg.sin({r})", "tg.sin({r}) ** 3.0", "tg.sin({r})", "tg.cos({r}) * {r~}", "tg.tan(0.5 * tg.sin({r}))",
        "tg.asin(0.8 * tg.sin({r}))", "tg.acos(0.8 * tg.cos({r}))", "tg.atan({r})", "tg.atan2({r}, 1.5 + tg.cos({r}))",
        "tg.degrees({r}) * 0.01", "tg.radians({r}) * 10.0", "tg.sinh(tg.sin({r}))", "tg.cosh(tg.sin({r}))",
        "tg.tanh({r} - {r~})", "tg.asinh({r})", "tg.acosh(2.5 + tg.sin({r}))", "tg.atanh(0.5 * tg.sin({r}))",
        "tg.erf({r})", "tg.erfc({r})", "tg.erfinv(0.8 * tg.sin({r}))", "tg.erfcinv(1.0 + 0.8 * tg.sin({r}))",
        "tg.lerp({r}, {r}, 0.25)", "{r} * tg.stop_gradient(Real(0.5))", "tg.lerp({r}, {r}, tg.sin({r}))",
        "tg.dot({v3}, {v3})", "tg.dot({q}, {q})", "tg.length({v3} + Vec3(2.5, 0.5, -0.5))", "tg.length_sq({v4})",
        "tg.ddot({m22}, {m22})", "tg.trace({m33})", "tg.tanh(tg.determinant({m33}))", "tg.determinant({m22})",
        "tg.spatial_dot({sv}, {sv})",
    ),
    "i": (
        "{i} + {i~}", "{i} - {i~}", "{i} * {i}", "{i} // 3", "{i} % 5", "{i} // ({i} % 3 + 1)", "{i} % ({i} % 4 + 5)",
        "{i} & {i}", "{i} | {i}", "{i} ^ {i}", "~{i}", "{i} << 1", "{i} >> 1", "-{i}", "tg.bit_and({i}, 6)",
        "tg.bit_or({i}, {i})", "tg.bit_xor({i}, {i})", "tg.invert({i})", "tg.lshift({i}, {i} % 3)",
        "tg.rshift({i}, {i} % 3)", "tg.min({i}, {i})", "tg.max({i}, {i~})", "tg.abs({i})", "tg.sign({i})",
        "tg.clamp({i}, -3, 4)", "tg.where({b}, {i}, {i})", "tg.floordiv({i}, 4)", "tg.mod({i}, 4)", "tg.step({i})",
        "tg.argmin({v3})", "tg.argmax({v4})", "tg.nonzero({i})",
    ),
    "b": (
        "{r} + {e} < {r~}", "{r} + {e} >= {c}", "{i} > {i~}", "{i} % 2 == 0", "{i} != {i}", "{r} + {e} <= {r}", "tg.isnan({r})",
        "tg.isfinite({r})", "tg.isinf({r})", "{b} & {b}", "{b} | {b}", "{b} ^ {b}", "~{b}", "tg.where({b}, {b}, {b})",
    ),
    "v2": ("{v2} + {v2}", "{v2} - {v2} * 0.5", "tg.cw_mul({v2}, {v2})", "-{v2}", "{v2} * {r}", "tg.lerp({v2}, {v2}, {r})"),
    "v3": (
        "{v3} + {v3}", "{v3} - {v3}", "{v3} * {r}", "{v3} / (2.0 + tg.sin({r}))", "tg.cross({v3}, {v3})",
        "tg.normalize({v3} + Vec3(2.5, 0.5, -0.5))", "tg.cw_mul({v3}, {v3})", "tg.quat_rotate({q}, {v3})",
        "tg.cw_div({v3}, Vec3(1.5, 2.0, -2.5))", "tg.quat_rotate_inv({q}, {v3})", "tg.transform_point({x}, {v3})",
        "tg.transform_vector({x}, {v3})", "tg.transform_get_translation({x})", "{m33} * {v3}",
        "tg.get_diag({m33})", "tg.spatial_top({sv})", "tg.spatial_bottom({sv})", "tg.min({v3}, {v3})",
        "tg.max({v3}, {v3})", "tg.abs({v3})", "tg.where({b}, {v3}, {v3})", "tg.transform_point({m44}, {v3})",
        "tg.lerp({v3}, {v3}, 0.3)", "tg.transform_vector({m44}, {v3})",
    ),
    "v4": ("{v4} + {v4}", "{v4} * {r}", "tg.get_diag({m44})", "{m44} * {v4} * 0.3", "tg.normalize({v4} + Vec4(2.5, 0.5, 1.0, 0.0))"),
    "m22": (
        "{m22} + {m22}", "{m22} * {m22} * 0.5", "tg.outer({v2}, {v2})", "tg.transpose({m22})",
        "tg.inverse({m22} * 0.3 + Mat22(2.0, 0.1, 0.2, 2.5))", "{m22} * {r}", "tg.diag({v2})",
        "tg.matrix_from_rows({v2}, {v2})", "tg.cw_mul({m22}, {m22})",
    ),
    "m33": (
        "{m33} + {m33}", "{m33} * {m33} * 0.3", "tg.outer({v3}, {v3})", "tg.skew({v3})", "tg.transpose({m33})",
        "tg.diag({v3})", "tg.inverse({m33} * 0.2 + tg.identity(3, Real) * 2.0)", "tg.quat_to_matrix({q})",
        "tg.matrix_from_cols({v3}, {v3}, {v3})", "{m33} * {r}",
    ),
    "m44": (
        "tg.transform_to_matrix({x})", "{m44} * {m44} * 0.2", "tg.transform_compose({v3}, {q}, {v3} * 0.2 + Vec3(1.5, 1.25, 2.0))",
        "tg.outer({v4}, {v4})", "tg.inverse(tg.transform_to_matrix({x}))",
    ),
    "q": (
        "{q} * {q}", "tg.quat_inverse({q})", "tg.normalize({q} + Quat(0.5, 0.1, -0.2, 3.0))", "tg.quat_rpy({r}, {r}, {r})",
        "tg.quat_from_axis_angle(tg.normalize({v3} + Vec3(2.5, 0.5, 0.0)), {r})", "tg.quat_from_matrix(tg.quat_to_matrix({q}))",
        "tg.quat_slerp(tg.normalize({q} + Quat(0.0, 0.0, 0.0, 4.0)), tg.normalize({q} + Quat(0.0, 4.0, 0.0, 4.0)), 0.3)",
        "tg.transform_get_rotation({x})",
    ),
    "x": (
        "{x} * {x}", "tg.transform_multiply({x}, {x})", "tg.transform_inverse({x})",
        "tg.transform_from_matrix(tg.transform_to_matrix({x}))",
    ),
    "sv": ("{sv} + {sv}", "{sv} * {r}", "tg.spatial_cross({sv}, {sv}) * 0.5", "tg.spatial_cross_dual({sv}, {sv}) * 0.5"),
    "S": (),
}  # fmt: skip

#: only scalars
SCALAR: dict[str, tuple[str, ...]] = {
    "r": (
        "Real({i} % 7) * 0.1", "({r} if {b} else {r})", "{v3}[{1}]", "{v2}[1]", "{m33}[{1}, 2]", "{q}[3]",
        "{S}.mass", "{S}.at[{1}]", "{x}.p[0]", "f_scalar({r}, {r})", "f_loop({r}, {i})",
        "tg.transform_decompose(tg.transform_compose({v3}, {q}, {v3} * 0.2 + Vec3(1.5, 1.25, 2.0)))[0][1]",
        "tg.quat_to_axis_angle(tg.quat_rpy({r}, 0.5 * tg.sin({r}) + 1.0, {r}))[1]", "f_body({S})",
        "tg.transform_decompose(tg.transform_compose({v3}, {q}, {v3} * 0.2 + Vec3(1.5, 1.25, 2.0)))[2][1]",
    ),
    "i": ("int({r} * 3.0 + {e})", "({i} if {b} else {i})", "int({b})", "{S}.count", "int(tg.int64({i}) * tg.int64(3))"),
    "b": ("not ({b})", "({b} and {b})", "({b} or {b})", "{r} + {e} < {r} < {r} + {e}", "({b} if {b} else {b})"),
    "v2": ("tg.svd2({m22} * 0.2 + Mat22(1.0, 0.1, 0.2, 3.0))[1]", "Vec2({r}, {r})", "tg.vector({r}, {r})", "f_complex({v2}, {v2})"),
    "v3": ("{m33} @ {v3}", "tg.eig3({m33} * 0.2 + tg.diag(Vec3(1.0, 2.5, 4.0)))[1]", "tg.svd3({m33} * 0.2 + tg.diag(Vec3(1.0, 2.5, 4.0)))[1]", "Vec3({r}, {r}, {r})", "{S}.at", "f_vector({v3}, {r})", "({v3} if {b} else {v3})", "{m33}[{1}]"),
    "v4": ("Vec4({r}, {r}, {r}, 0.5)", "tg.vector({r}, {r}, {r}, {r})"),
    "m22": ("{m22} @ {m22} * 0.5", "Mat22({r}, {r}, {r}, {r})", "tg.matrix({r}, {r}, {r}, {r}, shape=(2, 2))"),
    "m33": ("tg.qr3({m33} * 0.2 + tg.diag(Vec3(1.0, 2.5, 4.0)))[0]", "tg.qr3({m33} * 0.2 + tg.diag(Vec3(1.0, 2.5, 4.0)))[1]", "tg.matrix_from_rows({v3}, {v3}, Vec3({r}, {r}, 0.25))", "({m33} if {b} else {m33})"),
    "m44": ("tg.matrix(1.0, {r}, 0.0, 0.5, {r}, 1.0, 0.25, {r}, 0.0, 0.0, 1.0, {r}, 0.0, 0.0, 0.0, 1.0, shape=(4, 4))",),
    "q": ("tg.quat_from_matrix(tg.transform_to_matrix({x}))", "tg.normalize(tg.quaternion({r}, {r}, {r}, 2.0 + tg.sin({r})))"),
    "x": ("Xform({v3}, {q})", "Xform({v3}, tg.quat_identity(Real))", "tg.transform_multiply({x}, tg.transform_identity(Real))"),
    "sv": ("Spatial({v3}, {v3})",),
    "S": ("Body(mass={r}, at={v3}, count={i})", "f_struct({S}, {r})", "({S} if {b} else {S})"),
}  # fmt: skip

#: only tiles, of the shape of the result
TILE: dict[str, tuple[str, ...]] = {
    "r": (
        "tg.tile_astype({i} % 7, Real) * 0.1", "({i} % 5).astype(Real) * 0.25", "{r}.copy()", "{r} * {r.}",
        "tg.tile_map(tg.sin, {r})", "tg.tile_map(f_scalar, {r}, {r~})", "tg.tile_map(f_loop, {r}, {i})",
        "tg.tile_scan(tg.add, {r}, axis={ax}) * 0.5", "tg.tile_scan(tg.mul, tg.cos({r}), axis={ax}, reverse={tf})",
        "tg.tile_scan(tg.max, {r}, axis={ax}, reverse={tf})", "tg.tile_scan(tg.min, {r}, axis=None, reverse={tf})",
        "tg.tile_scan(lambda a, b: a + b + a * b * 0.25, tg.sin({r}), axis={ax})",
        "tg.tile_scan(tg.add, {r}, axis={ax}, exclusive=True, initial={r.})",
        "tg.tile_scan_inclusive({r}) * 0.3", "tg.tile_scan_exclusive({r}, axis={ax}) * 0.3",
        "tg.tile_scan_max_inclusive({r}, axis={ax})", "tg.tile_scan_min_inclusive({r})",
        "tg.where({b.}, {r}, {r})", "({r} if {b.} else {r})", "f_tile({r}, {r.})", "f_tile_writes({r}.copy(), {r.})",
        "tg.tile_take_along({r}, tg.tile_argsort({r}, axis={ax!}), axis={ax!})", "tg.copy({r})",
    ),
    "i": (
        "tg.tile_astype({r} * 3.0 + {e}, int)", "tg.tile_astype(tg.tile_astype({i} % 9, {W}) * {W}(3), int)",
        "tg.tile_astype(tg.max(tg.tile_astype({i} % 9, {W}), tg.tile_astype({i} % 5, {W})), int)",
        "tg.tile_astype(tg.tile_scan(tg.add, tg.tile_astype({i} % 5, {W}), axis={ax}), int)",
        "tg.tile_astype(tg.tile_astype({i}, {W}) & tg.tile_astype({i}, {W}), int)", "tg.tile_astype({b}, int)",
        "tg.tile_astype(tg.tile_astype({i} % 9, {W}) // {W}(2) + tg.tile_astype({i} % 3, {W}) % {W}(2), int)",
        "tg.tile_argsort({r}, axis={ax!})", "tg.tile_argsort({i}, axis={ax!}, descending={tf})",
        "tg.tile_scan(tg.max, {i}, axis={ax})", "tg.tile_astype(tg.tile_astype({i}, {W}) >> {W}(1), int)",
    ),
    "b": ("tg.tile_astype({i} % 2, tg.bool)", "tg.tile_map(lambda a, b: a + {e} < b, {r}, {r})"),
    "v2": ("tg.tile_map(lambda a, b: Vec2(a, b), {r}, {r})", "tg.tile_scan(tg.add, {v2}, axis={ax}) * 0.5", "tg.tile_map(f_complex, {v2}, {v2})"),
    "v3": (
        "tg.tile_map(lambda a, b: Vec3(a, b, a * b), {r}, {r})", "tg.tile_map(f_vector, {v3}, {r})",
        "tg.tile_scan(tg.add, {v3}, axis={ax}) * 0.3", "tg.tile_map(lambda s: s.at * 0.5, {S})",
        "tg.where({b}, {v3}, {v3})",
    ),
    "v4": ("tg.tile_map(lambda a, b: Vec4(a, b, b, a), {r}, {r})",),
    "m22": ("tg.tile_map(lambda a, b: Mat22(a, b, b, a), {r}, {r})",),
    "m33": ("tg.tile_map(lambda u, v: tg.outer(u, v), {v3}, {v3})",),
    "m44": (),
    "q": ("tg.tile_map(lambda a, b, c: tg.quat_rpy(a, b, c), {r}, {r}, {r})",),
    "x": ("tg.tile_map(lambda p, q: Xform(p, q), {v3}, {q})",),
    "sv": ("tg.tile_map(lambda p, q: Spatial(p, q), {v3}, {v3})",),
    "S": ("tg.tile_map(lambda a, v: Body(mass=a, at=v, count=3), {r}, {v3})",),
}  # fmt: skip

#: tiles (1,) of reals: `{r}`, `{v3}`, ... are tiles of any one shape, `{A}` a square matrix, `{P}` a positive definite
#: one, `{G}` a well-conditioned one, `{L}` a lower triangular one, `{w}` a vector of the same size
ONE: tuple[str, ...] = (
    "tg.tile_sum({r})", "tg.tile_prod(tg.cos({r}))", "tg.tile_min({r})", "tg.tile_max({r})", "{r}.sum()", "{r}.max()",
    "tg.tile_reduce(tg.add, {r})", "tg.tile_reduce(lambda a, b: a + b + a * b * 0.25, tg.sin({r}))",
    "tg.tile_dot({r}, {r})", "tg.tile_trace({A})", "tg.tile_det({G}) * 0.1", "tg.tile_slogdet({G})[1]",
    "tg.tile_sum(tg.tile_topk({r}, {k}, axis=None, largest={tf})[0])", "tg.tile_sum(tg.tile_lu({G})[0])",
    "tg.tile_sum(tg.tile_qr({G})[0] * tg.sin({A}))", "tg.tile_sum(tg.tile_qr({G})[1])", "tg.tile_sum(tg.tile_inv({G}))",
    "tg.tile_sum(tg.tile_eigh({E})[0] * {w})", "tg.tile_sum(tg.abs(tg.tile_eigh({E}, fill_mode=\"{ul}\")[1]) * tg.sin({A}))",
    "tg.tile_sum(tg.tile_cholesky({P}) * {A})", "tg.tile_sum(tg.tile_cholesky({P}, fill_mode=\"{ul}\"))",
    "tg.tile_sum(tg.tile_cholesky_solve(tg.tile_cholesky({P}), {w}))", "tg.tile_sum(tg.tile_solve({G}, {w}) * {w})",
    "tg.tile_sum(tg.tile_lower_solve({L}, {w}))", "tg.tile_sum(tg.tile_upper_solve({L}.T, {w}))",
    "tg.tile_sum(tg.tile_solve({G}, {A}))", "tg.tile_sum(tg.tile_outer({w}, {w}) * {A})", "tg.tile_sum(tg.tile_diag({A}))",
    "tg.tile_sum(tg.tile_diag({w}, k={c1}) * 0.5)", "tg.tile_sum(tg.tile_tril({A}, k={c1}))", "tg.tile_sum(tg.tile_triu({A}))",
    "tg.tile_sum(tg.tile_diag_add({A}, {w}))", "tg.tile_sum({A} @ {w})", "tg.tile_sum({w} @ {A})",
    "tg.tile_sum(tg.tile_matmul({A}, {A}, alpha={r.}))",
    "tg.tile_sum(tg.tile_histogram({r}, 3, range=(-1.0, 1.0), weights={r}) * tg.tile_arange(3, dtype=Real))",
    "tg.tile_astype(tg.tile_unique_count({i}) % 5, Real) * 0.1", "tg.tile_astype(tg.tile_argmax({r}) % 5, Real) * 0.2",
    "tg.tile_astype(tg.tile_argmin({r}) % 5, Real) * 0.2", "tg.tile_astype(tg.tile_sum({i}) % 5, Real) * 0.2",
    "tg.tile_astype(tg.tile_prod({i} % 3) % 5, Real) * 0.2", "tg.tile_astype(tg.tile_max({i}) % 5, Real) * 0.2",
    "tg.where(tg.tile_all({b}), {r.}, 0.25)", "tg.where(tg.tile_any({b}), {r.}, 0.25)",
    "tg.tile_map(tg.length, tg.tile_sum({v3}) + Vec3(2.5, 0.5, 0.5))", "tg.tile_map(tg.trace, tg.tile_sum({m33}))",
    "tg.tile_map(lambda v: v[0] * v[1], tg.tile_sum(tg.tile_rfft({r})))", "tg.tile_map(lambda s: s.mass, tg.tile_reduce(f_merge, {S}))",
    "tg.tile_sum(tg.tile_map(tg.length_sq, tg.tile_slice_indexed({v3}, {ix}, axis=0)))",
    "tg.tile_sum(tg.tile_slice_indexed({r}, {ix}, axis=0))", "tg.tile_sum({r}[{ix}])",
    "tg.tile_sum(tg.tile_randf(3, tg.rand_init({1}, {1}), dtype=Real) * {r.})",
    "tg.tile_sum(tg.tile_randn(3, tg.rand_init({1}), dtype=Real) * {r.})",
    "tg.tile_astype(tg.tile_sum(tg.tile_randi(3, tg.rand_init({1}), 0, 5)), Real) * {r.}",
    "tg.tile_sum(tg.tile_irfft(tg.tile_map(lambda a, b: Vec2(a, b), {r}, {r})) * 0.5)",
    "tg.tile_map(lambda v: v[0], tg.tile_sum({v2m} @ {v2m}))",
    "tg.tile_map(tg.dot, tg.tile_max(tg.tile_map(tg.length, {v3} + Vec3(2.5, 0.5, 0.5))) * tg.tile_full(1, Vec3(1.0, 2.0, 3.0)), tg.tile_sum({v3}))",
)  # fmt: skip

#: templates of each kind for functions that a program defines at its start
FUNCTIONS = {
    "f_scalar": "@tg.func\ndef f_scalar(a: Real, b: Real):\n    if a > {c}:\n        return tg.sin(a) * b\n    return b - {r}\n",
    "f_loop": (
        "@tg.func\ndef f_loop(a: Real, n: int):\n    for k in range(n % 4):\n        if k == 2:\n            return a * 0.5\n"
        "        a = {r}\n    return a\n"
    ),
    "f_vector": "@tg.func\ndef f_vector(u: Vec3, a: Real):\n    u[1] = a\n    return u * {r} + Vec3(a, 0.5, -a)\n",
    "f_complex": "@tg.func\ndef f_complex(z: Vec2, w: Vec2):\n    return Vec2(z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]) * 0.5\n",
    "f_struct": "@tg.func\ndef f_struct(s: Body, a: Real):\n    s.mass = s.mass * 0.5 + a\n    s.at[0] += a\n    return s\n",
    "f_body": "@tg.func\ndef f_body(s: Body):\n    return s.mass * s.at[1] + tg.sin(s.at[2])\n",
    "f_merge": (
        "@tg.func\ndef f_merge(s: Body, t: Body):\n    return Body(mass=s.mass + t.mass, at=s.at + t.at, count=s.count + t.count)\n"
    ),
    "f_tile": "@tg.func\ndef f_tile(t: Any, a: Real):\n    t = t * 1.0\n    for _ in range(2):\n        t = tg.sin(t) * a + t * 0.5\n    return t\n",
    "f_tile_writes": "@tg.func\ndef f_tile_writes(t: Any, a: Real):\n    t[0] = tg.sin(t[0]) * a\n    t *= 0.5\n    return t\n",
}  # fmt: skip
