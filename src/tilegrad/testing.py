"""Checks of ops and of gradients, for our tests and for authors of ops.

`check_op` holds an op's rules against each other on one sample; `gradcheck` holds a launch's gradient against finite
differences. All raise AssertionError with what was off. Does not need pytest.
"""

from __future__ import annotations

from tilegrad.gradcheck import GradcheckError, Report, gradcheck
from tilegrad.op_checks import (
    OneOp,
    assert_close,
    check_gradient,
    check_kernel_gradient,
    check_low_precision_gradient,
    check_op,
    check_second_derivative,
    check_text,
    gradient_case,
    is_differentiable,
    one_op_kernel,
    operand_kind,
    run_body,
    run_one,
)

__all__ = [
    "GradcheckError", "OneOp", "Report", "assert_close", "check_gradient", "check_kernel_gradient",
    "check_low_precision_gradient", "check_op", "check_second_derivative", "check_text", "gradcheck", "gradient_case",
    "is_differentiable", "one_op_kernel", "operand_kind", "run_body", "run_one",
]  # fmt: skip
