"""Gradient buffer: the gradients of all parameters in one flat tensor, filled by hooks during backward."""

from collections.abc import Callable

from torch import Tensor, nn

from manyhands.engine.parameters.flat_parameters import FlatParameters


class GradientBuffer:
    """A row into which each parameter's gradient goes as soon as backward has it."""

    def __init__(self, flat: FlatParameters, row: Tensor, come: Callable[[int], None] = lambda number: None) -> None:
        """`come` hears of each parameter whose gradient has come, or a further part of it."""
        self.flat, self.row, self.come = flat, row, come
        self.missing = set(range(len(flat.parameters)))
        for number, parameter in enumerate(flat.parameters):
            parameter.register_post_accumulate_grad_hook(self._keep(number))  # type: ignore[no-untyped-call]

    def _keep(self, number: int) -> Callable[[nn.Parameter], None]:
        place = self.flat.view(self.row, number)

        def hook(parameter: nn.Parameter) -> None:
            assert parameter.grad is not None
            if number in self.missing:
                place.copy_(parameter.grad)
                self.missing.remove(number)
            else:  # a further part of an accumulated batch
                place.add_(parameter.grad)
            parameter.grad = None
            self.come(number)

        return hook

    def complete(self) -> set[int]:
        """After backward: parameters that were not used, which have none; the next step's are awaited."""
        unused, self.missing = self.missing, set(range(len(self.flat.parameters)))
        for number in unused:
            self.flat.view(self.row, number).zero_()
        return unused
