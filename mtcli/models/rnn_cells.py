"""LSTM and GRU layers, and multiplication by a matrix that a loop reuses at every step."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from mtcli.models.linear import product_dtype

CellState = tuple[Tensor, ...]  # hidden state, and the cell state of an LSTM; each [B, D]


class DeferredMatrix:
    """Matrix, or one matrix per sentence, that multiplies the input at each step of a loop.

    Computing the gradient of the matrix at each step would take longer than the steps themselves.
    Instead, each step records its input and output gradient, and one large product computes the
    gradient of the matrix at the end of the backward pass.
    """

    def __init__(self, matrix: Tensor) -> None:
        matrix = matrix.to(product_dtype(matrix))
        self.records: list[tuple[Tensor, Tensor]] = []  # input and output gradient of each step
        self.needs_gradient = torch.is_grad_enabled()
        defer: Callable[..., Tensor] = _DeferredGradient.apply
        self.matrix = defer(matrix, self.records) if self.needs_gradient else matrix
        transposed = matrix.detach().mT
        # A contiguous copy speeds up the many matrix products of a training step.
        self.transposed = transposed.contiguous() if self.needs_gradient else transposed

    def __call__(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        """Return `x` [..., n, d_in] times the transposed matrix [..., d_in, d_out].

        `addend`, such as a bias, is added to the product [..., n, d_out].
        """
        x = x.to(self.matrix.dtype)
        addend = None if addend is None else addend.to(x.dtype)
        if self.needs_gradient:
            multiply: Callable[..., Tensor] = _DeferredProduct.apply
            return multiply(x, addend, self.matrix, self.transposed, self.records)
        return _multiply(x, addend, self.transposed)


def _multiply(x: Tensor, addend: Tensor | None, transposed: Tensor) -> Tensor:
    if addend is None:
        return x @ transposed
    return (torch.addmm if x.ndim == 2 else torch.baddbmm)(addend, x, transposed)


class _DeferredProduct(torch.autograd.Function):
    """Matrix product that records its input and output gradient for `_DeferredGradient`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, addend: Tensor | None, matrix: Tensor, transposed: Tensor, records: Any
    ) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.records = records
        return _multiply(x, addend, transposed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        [gradient], (x, matrix) = gradients, ctx.saved_tensors
        needs_x, needs_addend, needs_matrix, *_ = ctx.needs_input_grad
        if needs_matrix:
            ctx.records.append((x, gradient))
        x_gradient = gradient @ matrix if needs_x else None
        # If the addend is a broadcast bias, torch sums this gradient over the rows.
        return x_gradient, gradient if needs_addend else None, None, None, None


class _DeferredGradient(torch.autograd.Function):
    """Identity function. Its backward pass runs last and computes the gradient of the matrix."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, records: Any) -> Tensor:
        ctx.records = records
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        del gradients  # always None: the products recorded their gradients instead
        inputs, outputs = (torch.cat(parts, dim=-2) for parts in zip(*ctx.records, strict=True))
        ctx.records.clear()
        return outputs.mT @ inputs, None


@cache
def _has_cpu_lstm(dtype: torch.dtype) -> bool:
    """Return whether torch can train an LSTM in `dtype` on this CPU.

    On CPUs, torch does not support an LSTM in float16. oneDNN has no bfloat16 LSTM for CPUs without
    AVX-512, but torch 2.13 calls oneDNN without checking this. This function therefore runs a tiny
    LSTM once per process.
    """
    if dtype != torch.bfloat16:
        return dtype != torch.float16
    try:
        # Do not create a module: its initialization would advance the random state of training.
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", dtype):
            x = torch.zeros(1, 1, 8, requires_grad=True)
            states, weights = (torch.zeros(1, 1, 8),) * 2, [torch.zeros(32, 8)] * 2
            biases = [torch.zeros(32)] * 2
            hidden, *_ = torch.lstm(x, states, weights + biases, True, 1, 0.0, True, False, False)
            hidden.sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


class Lstm(nn.LSTM):
    """Long short-term memory. Its state consists of the hidden state and the cell state."""

    n_states = 2
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def run(self, x: Any, states: CellState | None = None) -> tuple[Any, CellState]:
        """Process the sequences `x`, packed or not; return hidden states and the final state."""
        if x.data.device.type == "cpu" and not _has_cpu_lstm(product_dtype(x.data)):
            with torch.autocast("cpu", enabled=False):
                states = states and tuple(state.float() for state in states)
                hidden, states = self(x.float(), states)
        else:
            hidden, states = self(x, states)
        return hidden, states

    def input_projection(self) -> tuple[Tensor, Tensor]:
        """Return the weight and the bias that map the input to its contribution to the gates."""
        return self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0

    def step(self, gates: Tensor, recurrent_weight: DeferredMatrix, states: CellState) -> CellState:
        """Return the next state, given the input's contribution to the gates [B, 4*D]."""
        hidden, cell = states
        sums = recurrent_weight(hidden, gates)
        input_gate, forget_gate, candidate, output_gate = sums.chunk(4, dim=-1)  # torch's order
        cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
        return output_gate.sigmoid() * cell.tanh(), cell


class Gru(nn.GRU):
    """Gated recurrent unit. Its state is the hidden state."""

    n_states = 1
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def run(self, x: Any, states: CellState | None = None) -> tuple[Any, CellState]:
        """Process the sequences `x`, packed or not; return hidden states and the final state."""
        hidden, last = self(x, states[0] if states else None)
        return hidden, (last,)

    def input_projection(self) -> tuple[Tensor, Tensor]:
        """Return the weight and the bias that map the input to its contribution to the gates."""
        return self.weight_ih_l0, self.bias_ih_l0

    def step(self, gates: Tensor, recurrent_weight: DeferredMatrix, states: CellState) -> CellState:
        """Return the next state, given the input's contribution to the gates [B, 3*D]."""
        [hidden] = states
        width = hidden.size(-1)
        recurrent = recurrent_weight(hidden, self.bias_hh_l0)  # [B, 3*D]
        both_gates = (gates[:, : 2 * width] + recurrent[:, : 2 * width]).sigmoid()
        reset_gate, update_gate = both_gates.chunk(2, dim=-1)  # torch's order
        candidate = torch.addcmul(
            gates[:, 2 * width :], reset_gate, recurrent[:, 2 * width :]
        ).tanh()
        return (torch.lerp(candidate, hidden, update_gate),)


RecurrentLayer = Lstm | Gru
CELLS: dict[str, type[Lstm] | type[Gru]] = {"lstm": Lstm, "gru": Gru}


def initialize_cells(layers: Sequence[RecurrentLayer]) -> None:
    """Initialize each gate separately: Xavier for input weights, orthogonal for recurrent ones.

    The forget gates of an LSTM start with bias 1 (Jozefowicz et al. 2015).
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
