"""The core's optimizers equal MXNet's, and delay compensation follows its paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from geomx import _core
from geomx.errors import ConfigError
from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.kv.values import optimizer_numbers
from geomx.plugin.parts import optimizer_text
from geomx.workloads.cnn import DigitsConfig, digits_cnn
from geomx.workloads.resnet50 import ResNet50Config, resnet50

STEPS = 40
ELEMENTS = 203  # not a multiple of any vector's width
Vector = NDArray[np.float32]


@pytest.fixture(scope="module", name="mx")
def mxnet() -> Any:
    try:
        return load_mxnet()
    except ConfigError as error:
        pytest.skip(str(error))


def native(optimizer: dict[str, Any], key: int = 0) -> _core.Optimizer:
    return _core.Optimizer(optimizer_text(optimizer), key)


def gradients(seed: int, steps: int = STEPS, elements: int = ELEMENTS) -> Iterator[Vector]:
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        yield generator.uniform(-3, 3, elements).astype(np.float32)


def start(seed: int, elements: int = ELEMENTS) -> Vector:
    return np.random.default_rng((seed, 1)).uniform(-2, 2, elements).astype(np.float32)


def close(ours: Vector, theirs: Any, note: object) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=str(note))


# ---- MXNet's own ----

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("NAG", {}),
    ("NAG", {"momentum": 0.9}),
    ("Adam", {}),
    ("Adam", {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3}),
    ("RMSProp", {}),
    ("RMSProp", {"gamma1": 0.8, "clip_weights": 1.5}),
    ("RMSProp", {"centered": True, "gamma2": 0.8}),
    ("RMSProp", {"centered": True, "clip_weights": 1.5, "epsilon": 1e-4}),
    ("AdaGrad", {}),
    ("AdaGrad", {"eps": 1e-3}),
]
COMMON: list[dict[str, Any]] = [
    {},
    {"learning_rate": 0.05, "wd": 0.1},
    {"wd": 0.05, "rescale_grad": 0.25, "clip_gradient": 0.5},
]


@pytest.mark.slow
@pytest.mark.parametrize("common", COMMON, ids=str)
@pytest.mark.parametrize(("kind", "options"), KINDS, ids=str)
def test_random_sequences_equal_mxnets(
    mx: Any, kind: str, options: dict[str, Any], common: dict[str, Any]
) -> None:
    for seed in range(3):
        theirs = getattr(mx.optimizer, kind)(**options, **common)
        ours = native(optimizer_numbers(theirs, {}))
        weight = start(seed)
        twin = mx.nd.array(weight)
        state = theirs.create_state(0, twin)
        for step, gradient in enumerate(gradients(seed)):
            theirs.update(0, twin, mx.nd.array(gradient), state)
            ours.update(weight, gradient)
            close(weight, twin.asnumpy(), {"seed": seed, "step": step})


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=str)
def test_defaults_equal_mxnets(mx: Any, kind: str, options: dict[str, Any]) -> None:
    theirs = getattr(mx.optimizer, kind)(**options)
    spelled, bare = native(optimizer_numbers(theirs, {})), native({"name": kind.lower(), **options})
    weight, twin = start(4), start(4)
    for gradient in gradients(4, 5):
        spelled.update(weight, gradient)
        bare.update(twin, gradient)
    assert np.array_equal(weight, twin)


def test_adamw_equals_mxnets_operator(mx: Any) -> None:
    """``learning_rate`` is the operator's eta; its lr corrects the bias."""
    rate, wd, beta1, beta2 = 0.02, 0.3, 0.9, 0.99
    ours = native({"name": "adamw", "learning_rate": rate, "wd": wd, "beta2": beta2})
    weight = start(0)
    twin = mx.nd.array(weight)
    mean, square = mx.nd.zeros(ELEMENTS), mx.nd.zeros(ELEMENTS)
    for step, gradient in enumerate(gradients(0), 1):
        mx.nd.contrib.adamw_update(
            twin, mx.nd.array(gradient), mean, square, rescale_grad=mx.nd.ones(1), out=twin,
            lr=(1 - beta2**step) ** 0.5 / (1 - beta1**step), eta=rate, wd=wd,
            beta1=beta1, beta2=beta2, epsilon=1e-8,
        )  # fmt: skip
        ours.update(weight, gradient)
        close(weight, twin.asnumpy(), step)


def test_dcasgd_equals_mxnets_if_a_single_backup_is_correct(mx: Any) -> None:
    """MXNet compensates a delay of one update, which is correct for two alternating workers."""
    theirs = mx.optimizer.DCASGD(learning_rate=0.02, lamda=0.3, wd=0.01, clip_gradient=2)
    ours = native(optimizer_numbers(theirs, {}))
    weight = start(0)
    twin = mx.nd.array(weight)
    state = theirs.create_state(0, twin)
    for step, gradient in enumerate(gradients(0)):
        theirs.update(0, twin, mx.nd.array(gradient), state)
        ours.update(weight, gradient, source=step % 2)
        close(weight, twin.asnumpy(), step)


# ---- schedules ----


def schedulers(mx: Any) -> Iterator[Any]:
    made = mx.lr_scheduler
    for warmup in (
        {},
        {"warmup_steps": 7, "warmup_begin_lr": 0.02},
        {"warmup_steps": 12, "warmup_begin_lr": 0.05, "warmup_mode": "constant"},
    ):
        yield made.FactorScheduler(5, 0.5, stop_factor_lr=0.02, base_lr=0.4, **warmup)
        yield made.MultiFactorScheduler([3, 15, 16], 0.3, base_lr=0.4, **warmup)
        yield made.PolyScheduler(30, base_lr=0.4, pwr=3, final_lr=0.01, **warmup)
        yield made.CosineScheduler(30, base_lr=0.4, final_lr=0.01, **warmup)


@pytest.mark.slow
@pytest.mark.parametrize("begin", [0, 9])
@pytest.mark.parametrize("learning_rate", [None, 0.2])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_schedules_equal_mxnets(
    mx: Any, kind: str, learning_rate: float | None, begin: int
) -> None:
    for scheduler in schedulers(mx):
        theirs = mx.optimizer.create(
            kind, learning_rate=learning_rate, lr_scheduler=scheduler, begin_num_update=begin
        )
        ours = native(optimizer_numbers(theirs, {}))
        weight = start(0, 5)
        twin = mx.nd.array(weight)
        state = theirs.create_state(0, twin)
        for step, gradient in enumerate(gradients(0, elements=5)):
            theirs.update(0, twin, mx.nd.array(gradient), state)
            ours.update(weight, gradient)
            close(weight, twin.asnumpy(), {**vars(scheduler), "step": step})


def test_custom_schedules_are_refused(mx: Any) -> None:
    class Mine(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]
        pass

    with pytest.raises(ConfigError, match="mine is not one of factor, multifactor, poly, cosine"):
        optimizer_numbers(mx.optimizer.SGD(lr_scheduler=Mine()), {})
    used = mx.lr_scheduler.FactorScheduler(2, 0.5)
    used(9)
    with pytest.raises(ConfigError, match="used before"):
        optimizer_numbers(mx.optimizer.SGD(lr_scheduler=used), {})
    with pytest.raises(ConfigError, match="adadelta"):
        optimizer_numbers(mx.optimizer.AdaDelta(), {})


def test_multipliers_of_keys_are_sent(mx: Any) -> None:
    names = {0: "a_weight", 1: "a_bias", 2: "b_weight"}
    theirs = mx.optimizer.SGD(learning_rate=0.1, wd=0.1, param_idx2name=names)
    theirs.set_lr_mult({"b_weight": 0.5})
    numbers = optimizer_numbers(theirs, {})
    for key in names:
        ours, weight = native(numbers, key), start(key)
        twin = mx.nd.array(weight)
        for gradient in gradients(key, 5):
            theirs.update(key, twin, mx.nd.array(gradient), None)
            ours.update(weight, gradient)
        close(weight, twin.asnumpy(), key)


# ---- delay compensation (Zheng et al., 2017) ----


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("variance", [0, 1])
def test_every_source_is_compensated_for_its_own_delay(variance: int, momentum: float) -> None:
    rate, lamda = 0.05, 2.0 if variance else 0.04
    for seed in range(3):
        ours = native(
            {"name": "dcasgd", "learning_rate": rate, "variance": variance, "momentum": momentum}
        )
        weight = start(seed)
        expected = weight.astype(np.float64)
        initial, velocity = expected.copy(), np.zeros(ELEMENTS)
        backup, square = [initial] * 3, [np.zeros(ELEMENTS)] * 3
        # The third source is five times slower than the first.
        for step, gradient in enumerate(gradients(seed)):
            source = 2 if step % 8 == 7 else step % 3 % 2
            g = gradient.astype(np.float64)
            square[source] = 0.95 * square[source] + 0.05 * g * g
            strength = lamda / np.sqrt(square[source] + 1e-7) if variance else lamda
            velocity = momentum * velocity
            velocity -= rate * (g + strength * g * g * (expected - backup[source]))
            expected = expected + velocity
            backup[source] = expected
            ours.update(weight, gradient, source=source)
            np.testing.assert_allclose(
                weight, expected, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}, step {step}"
            )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("variance", [0, 1])
def test_dcasgd_without_compensation_equals_sgd(variance: int, momentum: float) -> None:
    options = {"learning_rate": 0.05, "wd": 0.1, "momentum": momentum, "clip_gradient": 1.0}
    sgd = native({"name": "sgd", **options})
    ours = native({"name": "dcasgd", "lamda": 0, "variance": variance, **options})
    weight, twin = start(1), start(1)
    for step, gradient in enumerate(gradients(1)):
        sgd.update(weight, gradient)
        ours.update(twin, gradient, source=step % 3)
        close(twin, weight, step)


@pytest.mark.parametrize("delay", [1, 3])
def test_delayed_nesterov_moves_its_momentum_every_few_updates(delay: int) -> None:
    """Liu et al., 2024, algorithm 3 with c = 0; their rate is `delay` times ours."""
    rate, beta, clip = 0.05, 0.7, 1.5
    ours = native(
        {"name": "delayed_nag", "learning_rate": rate, "momentum": beta, "delay": delay,
         "rescale_grad": 0.5, "clip_gradient": clip}
    )  # fmt: skip
    weight = start(3)
    expected = weight.astype(np.float64)
    velocity, buffer = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
    for step, gradient in enumerate(gradients(3)):
        g = np.clip(0.5 * gradient.astype(np.float64), -clip, clip)
        buffer += g
        theirs = delay * rate
        if (step + 1) % delay == 0:
            velocity = beta * velocity + buffer / delay
            expected -= theirs * (beta * velocity + g / delay)
            buffer[:] = 0
        else:
            expected -= theirs * g / delay
        ours.update(weight, gradient)
        close(weight, expected, step)


def test_geomxs_test_vector() -> None:
    """GeoMX's second gradient is compensated for the first update: it comes from another party.

    From the same party it was computed on the weights after that update, and nothing is left to
    compensate; GeoMX, which has one backup for all workers, compensates all the same.
    """
    for second, expected in ((1, [0.7508, 1.9996]), (0, [0.75, 2.0])):
        ours = native({"name": "dcasgd", "learning_rate": 0.1, "lamda": 0.04})
        weight = np.array([1, 2], np.float32)
        ours.update(weight, np.array([0.5, -1], np.float32), source=0)
        close(weight, [0.95, 2.1], "first")
        ours.update(weight, np.array([2, 1], np.float32), source=second)
        close(weight, expected, "second")


@pytest.mark.parametrize("name", _core.optimizers())
def test_average_divides_the_sum_by_the_number_of_workers(name: str) -> None:
    summed, mean = native({"name": name, "average": 1}), native({"name": name})
    weight, twin = start(2), start(2)
    for count, gradient in zip((1, 4, 2, 6), gradients(2), strict=False):
        summed.update(weight, gradient, merge_count=count)
        mean.update(twin, gradient / np.float32(count))
        close(weight, twin, count)


# ---- options of workloads ----


@pytest.mark.parametrize(
    ("config", "make"), [(DigitsConfig, digits_cnn), (ResNet50Config, resnet50)]
)
def test_workloads_have_their_optimizer_and_options(config: Any, make: Any) -> None:
    options = config(optimizer="nag", momentum=0.9, wd=1e-4, learning_rate=0.1)
    assert make(options).optimizer == {
        "name": "nag", "learning_rate": 0.1, "momentum": 0.9, "wd": 1e-4,
    }  # fmt: skip
    schedule = {"multifactor": {"step": [30, 60], "factor": 0.1}}
    more = {"centered": True, "schedule": schedule, "lr_mult": {3: 0.5}}
    made = make(config(optimizer="rmsprop", optimizer_options=more)).optimizer
    assert made["centered"] == made["schedule.multifactor.step.0"] / 30 == 1
    assert made["schedule.multifactor.step.1"] == 60
    assert made["lr_mult.3"] == 0.5


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"optimizer": "adamm"}, "optimizer", "adagrad, adam, adamw, dcasgd, delayed_nag, nag, "
         "rmsprop, sgd"),
        ({"momentum": 0.9}, "momentum", "no option momentum; it takes .*beta1"),
        ({"wd": float("nan")}, "wd", "bad option"),
        ({"optimizer_options": {"beta3": 1}}, "optimizer_options.beta3", "it takes .*beta1"),
        ({"optimizer_options": {"beta1": "x"}}, "optimizer_options.beta1", "must be a number"),
        ({"optimizer_options": {"beta1": None}}, "optimizer_options.beta1", "must be a number"),
        ({"optimizer_options": {"wd": 1}}, "optimizer_options.wd", "is workload.wd"),
        ({"optimizer_options": {"name": 1}}, "optimizer_options.name", "is workload.optimizer"),
        ({"optimizer_options": {"rescale_grad": 1}}, "optimizer_options.rescale_grad", "itself"),
        ({"optimizer_options": {"schedule": {"poly": {"pwr": 1}}}}, "optimizer_options",
         "schedule.poly.max_update must be given"),
    ],
)  # fmt: skip
def test_unknown_options_of_optimizers_are_refused(
    changes: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        digits_cnn(replace(DigitsConfig(), **changes))
    assert caught.value.key == f"workload.{key}"


# ---- saving and loading ----


class Heavy:
    """Momentum, in Python."""

    def __init__(self) -> None:
        self.velocity = np.zeros(0, np.float32)

    def update(self, weight: Vector, gradient: Vector, learning_rate: float) -> Vector:
        self.velocity = np.float32(0.9) * (self.velocity if self.velocity.size else 0 * weight)
        self.velocity += np.float32(learning_rate) * gradient
        moved: Vector = weight - self.velocity
        return moved


class Telling(Heavy):
    def save(self) -> Vector:
        return self.velocity

    def load(self, velocity: Vector) -> None:
        self.velocity = velocity


def test_optimizers_in_python_continue_from_what_they_saved(seed: int) -> None:
    def trained(saved_at: int) -> Vector:
        factory = [_core.python_optimizer("heavy", Telling(), "accel heavy")]
        optimizer = _core.Optimizer("heavy\nlearning_rate 0.1", 0, factory)
        weight = start(seed)
        for step, gradient in enumerate(gradients(seed)):
            if step == saved_at:
                saved = optimizer.save()
                optimizer = _core.Optimizer("heavy\nlearning_rate 0.1", 0, factory)
                optimizer.load(saved, ELEMENTS)
            optimizer.update(weight, gradient)
        return weight

    undisturbed = trained(-1)
    for saved_at in (0, seed % STEPS, STEPS - 1):
        assert np.array_equal(trained(saved_at), undisturbed)


def test_a_state_that_an_optimizer_cannot_tell_is_refused_by_name() -> None:
    factory = [_core.python_optimizer("heavy", Heavy(), "accel heavy")]
    optimizer = _core.Optimizer("heavy\nlearning_rate 0.1", 0, factory)
    with pytest.raises(RuntimeError, match="accel heavy: its optimizer keeps state and cannot"):
        optimizer.save()
