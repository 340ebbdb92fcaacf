"""Recurrent cells, and products with one matrix in every step of a loop."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

States = tuple[Tensor, ...]  # what a cell remembers, each [B, D]; the first is what it shows


class Shared:
    """A matrix, or one for each sentence, that every step of a loop multiplies with.

    A gradient of it for every step, added up, would cost more than the steps themselves. Here
    each step only notes what it has read and what came back; when all have, one large product
    makes the gradient.
    """

    def __init__(self, matrix: Tensor) -> None:
        matrix = matrix.to(_dtype(matrix))
        self.notes: list[tuple[Tensor, Tensor]] = []
        self.is_noted = torch.is_grad_enabled()
        collected: Callable[..., Tensor] = _Collected.apply
        self.matrix = collected(matrix, self.notes) if self.is_noted else matrix
        turned = matrix.detach().mT
        self.turned = turned.contiguous() if self.is_noted else turned  # faster, in many steps

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """`x` [..., N, columns] becomes [..., N, rows]; `plus`, or a bias, is added to it."""
        x = x.to(self.matrix.dtype)
        plus = None if plus is None else plus.to(x.dtype)
        if self.is_noted:
            noted: Callable[..., Tensor] = _Noted.apply
            return noted(x, plus, self.matrix, self.turned, self.notes)
        return _product(x, plus, self.turned)


def _dtype(tensor: Tensor) -> torch.dtype:
    """What torch's autocast would compute a product in."""
    device = tensor.device.type
    is_cast = torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if is_cast else tensor.dtype


def _product(x: Tensor, plus: Tensor | None, turned: Tensor) -> Tensor:
    if plus is None:
        return x @ turned
    return (torch.addmm if x.ndim == 2 else torch.baddbmm)(plus, x, turned)


class _Noted(torch.autograd.Function):
    """A product that leaves the gradient of its matrix to others."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, plus: Tensor | None, matrix: Tensor, turned: Tensor, notes: Any
    ) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.notes = notes
        return _product(x, plus, turned)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        [gradient], (x, matrix) = gradients, ctx.saved_tensors
        needs_x, needs_plus, needs_matrix, *_ = ctx.needs_input_grad
        if needs_matrix:
            ctx.notes.append((x, gradient))
        x_gradient = gradient @ matrix if needs_x else None
        # Of a bias torch itself adds up the rows.
        return x_gradient, gradient if needs_plus else None, None, None, None


class _Collected(torch.autograd.Function):
    """The matrix itself; torch asks for its gradient when all products with it are done."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, notes: Any) -> Tensor:
        ctx.notes = notes
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        del gradients  # there are none: they are in the notes
        read, came_back = (torch.cat(parts, dim=-2) for parts in zip(*ctx.notes, strict=True))
        ctx.notes.clear()
        return came_back.mT @ read, None


@cache
def _has_cpu_lstm(dtype: torch.dtype) -> bool:
    """Return whether torch can train an LSTM in `dtype` on this CPU.

    No CPU can in float16. In bfloat16, oneDNN has no LSTM for a CPU without AVX-512, and torch 2.13
    does not ask before it uses one. Therefore a tiny one is tried out, once per process.
    """
    if dtype != torch.bfloat16:
        return dtype != torch.float16
    try:
        # Not a module, whose initialization would draw random numbers that training draws, too.
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", dtype):
            x = torch.zeros(1, 1, 8, requires_grad=True)
            states, maps = (torch.zeros(1, 1, 8),) * 2, [torch.zeros(32, 8)] * 2
            biases = [torch.zeros(32)] * 2
            shown, *_ = torch.lstm(x, states, maps + biases, True, 1, 0.0, True, False, False)
            shown.sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


class Lstm(nn.LSTM):
    """Long short-term memory: beside what it shows it remembers what it does not."""

    n_states = 2
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def along(self, x: Any, states: States | None = None) -> tuple[Any, States]:
        """Read all of `x`, which may be packed; return what is shown, and the states at the end."""
        if x.data.device.type == "cpu" and not _has_cpu_lstm(_dtype(x.data)):
            with torch.autocast("cpu", enabled=False):
                shown, states = self(x.float(), states and tuple(state.float() for state in states))
        else:
            shown, states = self(x, states)
        return shown, states

    def input_map(self) -> tuple[Tensor, Tensor]:
        """The matrix and the bias that make a part of the gates of what is read."""
        return self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0

    def step(self, gates: Tensor, recurrent: Shared, states: States) -> States:
        """The states after one position, whose part of the gates is given; then comes their own."""
        hidden, cell = states
        enter, keep, new, show = recurrent(hidden, gates).chunk(4, dim=-1)  # torch's order
        cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return show.sigmoid() * cell.tanh(), cell


class Gru(nn.GRU):
    """Gated recurrent units: they show all that they remember."""

    n_states = 1
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def along(self, x: Any, states: States | None = None) -> tuple[Any, States]:
        """Read all of `x`, which may be packed; return what is shown, and the states at the end."""
        shown, hidden = self(x, states[0] if states else None)
        return shown, (hidden,)

    def input_map(self) -> tuple[Tensor, Tensor]:
        """The matrix and the bias that make a part of the gates of what is read."""
        return self.weight_ih_l0, self.bias_ih_l0

    def step(self, gates: Tensor, recurrent: Shared, states: States) -> States:
        """The states after one position, whose part of the gates is given; then comes their own."""
        [hidden] = states
        width = hidden.size(-1)
        remembered = recurrent(hidden, self.bias_hh_l0)
        both = (gates[:, : 2 * width] + remembered[:, : 2 * width]).sigmoid()
        reset, keep = both.chunk(2, dim=-1)  # torch's order
        new = torch.addcmul(gates[:, 2 * width :], reset, remembered[:, 2 * width :]).tanh()
        return (torch.lerp(new, hidden, keep),)


Layer = Lstm | Gru
CELLS: dict[str, type[Lstm] | type[Gru]] = {"lstm": Lstm, "gru": Gru}


def initialise_cells(layers: Sequence[Layer]) -> None:
    """Each gate by itself: Xavier's distribution, and rotations for what is remembered.

    What an LSTM remembers is kept at first (Jozefowicz et al. 2015).
    """
    for layer in layers:
        for name, parameter in layer.named_parameters():
            gates = torch.unflatten(parameter.detach(), 0, (-1, layer.hidden_size)).unbind()
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                if isinstance(layer, Lstm) and name.startswith("bias_ih"):
                    nn.init.ones_(gates[1])
            for gate in gates if parameter.ndim == 2 else ():
                is_recurrent = name.startswith("weight_hh")
                (nn.init.orthogonal_ if is_recurrent else nn.init.xavier_uniform_)(gate)
