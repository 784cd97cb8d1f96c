"""The polyhedron: any linear inequalities."""

from __future__ import annotations

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.algorithms.robust.simplex import as_weights
from fednet_emu.algorithms.robust.uncertainty.base import UncertaintySet, relative
from fednet_emu.arrays import Array
from fednet_emu.errors import ScenarioError


class Polyhedron(UncertaintySet):
    """sum_j matrix_ij p_j <= bounds_i for every row i; the prior does not matter."""

    matrix: tuple[tuple[float, ...], ...] = Field(min_length=1)
    """One row of coefficients for each inequality, one column for each device."""
    bounds: tuple[float, ...]
    """Right-hand side of each inequality."""

    @model_validator(mode="after")
    def _one_bound_per_row(self) -> Polyhedron:
        if len(self.matrix) != len(self.bounds):
            raise ValueError(f"one bound per row is needed, got {len(self.matrix)} rows and {len(self.bounds)} bounds")
        return self

    def worst_case(self, losses: Array, prior: Array) -> Array:
        """The linear programme, by HiGHS, whose tolerances are absolute."""
        from scipy.optimize import linprog

        count = len(losses)
        if any(len(row) != count for row in self.matrix):
            widths = sorted({len(row) for row in self.matrix})
            raise ScenarioError(f"uncertainty.matrix: not one column for each worker, got {widths}; give {count}")
        found = linprog(-relative(losses), A_ub=self.matrix, b_ub=self.bounds, A_eq=np.ones((1, count)), b_eq=[1.0])
        if not found.success:
            raise ScenarioError(f"uncertainty: the polyhedron holds no weights, got {found.message}; relax the bounds")
        return as_weights(found.x)
