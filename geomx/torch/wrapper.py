"""What `geomx.torch.Optimizer` has of an optimizer of PyTorch, besides its steps.

Groups, defaults and state are those of the wrapped optimizer. Hooks are the wrapper's own: those of
a step are called around every `step`, also if servers update. Hooks of the wrapped optimizer are
called when that one steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from geomx.errors import GeomxError


class Wrapper(torch.optim.Optimizer):
    """An optimizer that contains another.

    Args:
        inner: The wrapped optimizer.
    """

    # `torch.amp.GradScaler` calls every step, and leaves the scale to it: see `geomx.torch.amp`.
    _step_supports_amp_scaling = True

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        # PyTorch's constructor would create groups and a state of its own, and is not called. This
        # creates the lists of hooks, and has `step` call those around it.
        self.inner = inner
        super().__setstate__({})

    def __repr__(self) -> str:
        return f"geomx.torch.Optimizer({self.inner!r})"

    def __getstate__(self) -> dict[str, Any]:
        raise GeomxError(
            "geomx.torch.Optimizer is a worker of its job, and cannot be copied or pickled: save "
            "its state_dict()"
        )

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's."""
        return self.inner.param_groups  # type: ignore[no-any-return]

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state; empty if servers update."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:
        """The wrapped optimizer's."""
        return self.inner.defaults  # type: ignore[no-any-return]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: all workers have to initialise the same parameters at once.

        Raises:
            GeomxError: Always.
        """
        raise GeomxError("add the parameter group before wrapping the optimizer")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, as PyTorch does."""
        self.inner.zero_grad(set_to_none)

    # ---- hooks ----

    def _before_saving(self) -> None:
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)

    def _after_saving(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state, or what hooks return in its place."""
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, state)
            state = state if changed is None else changed
        return state

    def _before_loading(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of what is to be loaded, or what hooks return in its place."""
        state = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state)
            state = state if changed is None else dict(changed)
        return state

    def _after_loading(self) -> None:
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)
