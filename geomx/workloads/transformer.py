"""A small PyTorch transformer that is trained on text character by character, with real gradients.

Its architecture is defined here without PyTorch, so that sizes and times can be simulated where
that is not installed; `geomx.workloads.transformer_model` has the numerics.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geomx.errors import ConfigError
from geomx.workload import Model, Workload
from geomx.workloads.optimizers import optimizer_of
from geomx.workloads.prose import ALPHABET, CHARACTERS, HELD_OUT
from geomx.workloads.stages import Stage, layers_and_tensors
from geomx.workloads.transformer_config import TransformerConfig


@dataclass(frozen=True)
class TransformerWorkload(Workload):
    """The transformer.

    Attributes:
        config: Its architecture, and the device of the computation.
    """

    config: TransformerConfig = field(default_factory=TransformerConfig)
    has_numerics: bool = True

    def model(self, seed: int) -> Model:
        """Build the network and its text; see `Workload.model`.

        Raises:
            ConfigError: PyTorch is not installed, or the device does not exist here.
        """
        try:
            from geomx.workloads.transformer_model import TransformerModel
        except ModuleNotFoundError as error:
            remedy = "pip install 'geomx[torch]', or numerics=false for sizes and times only"
            raise ConfigError("workload", self.name, f"{error}: {remedy}") from error
        return TransformerModel(self.config, self, seed)


def stages(config: TransformerConfig) -> list[Stage]:
    """Return the layers in forward order, with the tensor names of PyTorch's modules."""
    letters, width, context = len(ALPHABET), config.width, config.context

    def dense(name: str, inputs: int, outputs: int, norm: str = "") -> Stage:
        """Return a dense layer with the normalisation of its input, if it has one."""
        tensors = [(f"{name}.weight", (outputs, inputs)), (f"{name}.bias", (outputs,))]
        if norm:
            tensors += [(f"{norm}.weight", (inputs,)), (f"{norm}.bias", (inputs,))]
        return Stage(name, tuple(tensors), context)

    made = [Stage("letters", (("letters.weight", (letters, width)),))]
    made += [Stage("positions", (("positions.weight", (context, width)),))]
    for block in (f"blocks.{number}" for number in range(config.blocks)):
        made += [
            dense(f"{block}.gather", width, 3 * width, f"{block}.norm1"),
            dense(f"{block}.attended", width, width),
            dense(f"{block}.widen", width, 4 * width, f"{block}.norm2"),
            dense(f"{block}.narrow", 4 * width, width),
        ]
    return [*made, dense("scores", width, letters, "norm")]


def torch_transformer(config: TransformerConfig) -> Workload:
    """A small transformer of PyTorch on a text that comes with geomx, letter by letter.

    Raises:
        ConfigError: An option is invalid.
    """
    if config.width % config.heads:
        remedy = f"must be a divisor of the width, {config.width}"
        raise ConfigError("workload.heads", config.heads, remedy)
    layers, tensors = layers_and_tensors(stages(config), config.forward_ms, config.backward_ms)
    return TransformerWorkload(
        name="torch_transformer",
        layers=layers,
        tensors=tensors,
        batch_size=config.batch_size,
        samples=(CHARACTERS - HELD_OUT - 1) // config.context,
        iterations=config.iterations,
        evaluate_every=config.evaluate_every,
        optimizer=optimizer_of(config),
        device=config.device,
        config=config,
    )
