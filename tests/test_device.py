"""Devices: their names, the default one, that layouts, plans, programs and the pool know theirs, and that two are never mixed.

The second device of these tests has the kind "test": a name without memory or programs, which tensors over the processor's
memory are labelled with.
"""

import copy
import inspect
import pickle
import sys

import numpy as np
import pytest

import tengen
import tengen.functional as F
from tengen import Parameter, Tensor, load_graph, random, trace
from tengen.base import device as devices
from tengen.base.device import Device, common_device, cpu
from tengen.base.dtype import float32
from tengen.base.errors import DeviceError, TengenError
from tengen.compiler.arrays import new_buffer
from tengen.compiler.driver import compile_graph
from tengen.compiler.plans import Layout
from tengen.ir.text import parse_graph
from tengen.random import RNG
from tengen.runtime import native
from tengen.tensor import tensor_over

TEST = Device("test")


def elsewhere(values):
    """A tensor that says it lies on the test device."""
    a = np.asarray(values, np.float32)
    return tensor_over(new_buffer(a), Layout(a.shape, float32, None, TEST))


@pytest.fixture
def default_again():
    yield
    devices.set_default_device(cpu)


# ---- names -----------------------------------------------------------------------------------------------------------


class TorchDevice:
    """What `torch.device` is to Tengen: an object with a text."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text


@pytest.mark.parametrize(
    "name", ["cpu", "cpu0", "cpu:0", "cpux", "cpu0:0", "cpux:0", "xpu", "xpux", "xpu0", "xpux:0", "multithread2:0", "multithread16",
             "default", None, cpu, TorchDevice("cpu"), TorchDevice("cpu:0")],
)  # fmt: skip
def test_names_of_the_processor(name):
    assert Device.named(name) is cpu
    assert Tensor([1.0], device=name).device is cpu
    x = Tensor([1.0])
    assert x.to(name) is x


@pytest.mark.parametrize(
    "name", ["cuda", "cuda:0", "gpu0", "gpux", "gpu0:1", "rocm0", "cambricon0", "atlas0", "mps", "meta", "cpu1", "cpu:1", "xpu1",
             "multithread2:1", TorchDevice("cuda:0"), TEST],
)  # fmt: skip
def test_devices_that_are_not_here(name):
    with pytest.raises(DeviceError) as e:
        Device.named(name)
    assert str(name) in str(e.value) and "devices here: cpu" in str(e.value) and "help: " in str(e.value)


@pytest.mark.parametrize(
    "name", ["", "0", "cpu-1", "cpu0 ", " cpu", "CPU", "cpu:", "cpu:x", "cpu0:1", "cpu00000000000", "cpu:0:0", "multithread", "multithread0:0",
             "multithreadx:0", "banana", "banana0", "cpu\n", "cpu٣", 0, 1.5, True, (), ["cpu"], b"cpu", np.float32, "x" * 10000],
)  # fmt: skip
def test_what_names_no_device(name):
    with pytest.raises(DeviceError, match="names no device; devices here: cpu; help: "):
        Device.named(name)
    assert cpu != name


def test_torchs_own_device():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its devices are not read")
    assert Device.named(torch.device("cpu")) is cpu and Device.named(torch.device("cpu", 0)) is cpu
    with pytest.raises(DeviceError, match="there is no device 'cuda:0'"):
        Tensor([1.0], device=torch.device("cuda:0"))
    assert torch.device(str(Tensor([1.0]).device)) == torch.device("cpu")


def test_errors_reach_the_user():
    x = Tensor([1.0])
    for make in (
        lambda: Tensor([1.0], device="cuda:0"), lambda: Parameter([1.0], device="cuda:0"), lambda: x.to("cuda:0"),
        lambda: RNG(1, "cuda:0"), lambda: tengen.tensor([1.0], device="cuda:0"), lambda: tengen.from_dlpack(np.ones(2), device="cuda:0"),
        lambda: tengen.set_default_device("cuda:0"), lambda: Tensor(x, device="cuda:0"), lambda: tengen.device.get_allocated_memory("cuda:0"),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match="there is no device 'cuda:0'; devices here: cpu; help: "):
            make()
    assert issubclass(DeviceError, TengenError) and issubclass(DeviceError, ValueError)
    with pytest.raises(DeviceError, match=r"test_device\.py:\d+"):
        x.to("gpu0")


def test_a_device_is_one_object_that_does_not_change():
    assert Device("cpu") is cpu and Device("cpu", 0) is cpu and Device("cpu", 1) is not cpu
    assert pickle.loads(pickle.dumps(cpu)) is cpu and copy.deepcopy(cpu) is cpu and copy.copy(cpu) is cpu
    for change in (lambda: setattr(cpu, "kind", "gpu"), lambda: delattr(cpu, "index"), lambda: setattr(cpu, "more", 1)):
        with pytest.raises(AttributeError):
            change()
    assert (cpu.kind, cpu.type, cpu.index, str(cpu), repr(cpu)) == ("cpu", "cpu", 0, "cpu", "Device('cpu')")


def test_equality():
    d = Tensor([1.0]).device
    for name in ("cpu", "cpu0", "cpu:0", "xpux", "default", "multithread2:0"):
        assert d == name and name == d and not d != name
    for other in ("cpu1", "cuda:0", "test:0", None, 0, ("cpu", 0), TEST):
        assert d != other and not d == other
    assert TEST == "test:0" and TEST != "cpu0" and TEST != "default"
    assert {d: 1}["cpu"] == 1 and hash(d) == hash("cpu")


def test_a_stranger_in_the_default(default_again, monkeypatch):
    """Were there a second device, it could be the default, and be found by its name."""
    monkeypatch.setattr(devices, "HERE", (TEST, cpu))
    assert Device.named(TEST) is TEST
    with pytest.raises(DeviceError, match="devices here: test:0, cpu"):
        Device.named("cuda")
    devices.set_default_device(TEST)
    assert Device.named() is TEST and Device.named("default") is TEST and TEST == "default" and cpu != "default"
    assert Device.named("cpu") is cpu and tengen.get_default_device() is TEST
    with pytest.raises(DeviceError, match="this process has no memory pool for the device test:0"):
        Tensor([1.0])
    assert Tensor([1.0], device="cpu").device is cpu


# ---- the user's module -------------------------------------------------------------------------------------------------


def test_megengines_names(default_again):
    assert tengen.get_default_device() == "xpux" and tengen.get_default_device() is cpu
    assert tengen.get_device_count("cpu") == tengen.get_device_count("xpu") == 1
    assert [tengen.get_device_count(k) for k in ("gpu", "cuda", "rocm", "cambricon", "atlas")] == [0] * 5
    with pytest.raises(DeviceError, match="'toaster' is no kind of device; help: one of cpu, "):
        tengen.get_device_count("toaster")
    assert tengen.is_cuda_available() is False is tengen.device.is_rocm_available()
    assert tengen.device.is_cambricon_available() is False is tengen.device.is_atlas_available()
    assert tengen.device.what_is_xpu() == "cpu"
    tengen.set_default_device("cpu0")
    assert tengen.get_default_device() is cpu and set(tengen.device.__all__) <= set(dir(tengen.device))


def test_threads_of_a_default_device(default_again):
    before = tengen.config.threads
    try:
        tengen.set_default_device("multithread3:0")
        assert tengen.config.threads == 3 and tengen.get_default_device() is cpu
        tengen.set_default_device("cpu")
        assert tengen.config.threads == 3
    finally:
        tengen.set_threads(before)


def test_memory_figures():
    n = 3 << 20
    before = tengen.device.get_allocated_memory()
    x = Tensor(np.zeros(n, np.uint8))
    assert n <= tengen.device.get_allocated_memory("cpu0") - before <= 1.25 * n
    assert tengen.device.get_max_allocated_memory() >= tengen.device.get_allocated_memory()
    del x
    assert tengen.device.get_allocated_memory() == before <= tengen.device.get_reserved_memory()
    tengen.device.coalesce_free_memory()
    assert tengen.device.get_reserved_memory() == tengen.device.get_allocated_memory()


# ---- where tensors are made -------------------------------------------------------------------------------------------

LIKE = Tensor([1.0, 2.0])
MADE = {
    F.full: ((2, 3), 1.5), F.zeros: ((2, 3),), F.ones: (4,), F.arange: (5,), F.linspace: (0, 1, 5), F.eye: (3,),
    F.full_like: (LIKE, 2), F.zeros_like: (LIKE,), F.ones_like: (LIKE,), random.uniform: (0, 1, (2,)), random.normal: (0, 1, (2,)),
    random.randint: (0, 5, (2,)), random.permutation: (3,), random.rand: (2, 3), random.randn: (2,), random.randperm: (3,),
}  # fmt: skip


def test_every_function_that_makes_tensors_takes_a_device():
    takes = {f for module in (F, random) for name in module.__all__ if callable(f := getattr(module, name)) and not isinstance(f, type)
             and "device" in inspect.signature(f).parameters}  # fmt: skip
    assert takes == set(MADE)


@pytest.mark.parametrize("f", MADE, ids=lambda f: f.__name__)
def test_creation(f):
    args = MADE[f]
    for name in ("cpu0", "cpu:0", "xpux", cpu, TorchDevice("cpu"), None):
        y = f(*args, device=name)
        assert y.device is cpu and y.shape == f(*args).shape and y.dtype == f(*args).dtype
    with pytest.raises(DeviceError, match="there is no device 'cuda:0'; devices here: cpu; help: "):
        f(*args, device="cuda:0")
    with pytest.raises(DeviceError, match="'nowhere' names no device"):
        f(*args, device="nowhere")
    inside = trace(lambda: f(*args, device="cpu"))
    assert inside().device is cpu


@pytest.mark.parametrize("f", [f for f in MADE if hasattr(F, f.__name__)], ids=lambda f: f.__name__)
def test_what_is_made_lies_where_it_is_asked_for(f, default_again, monkeypatch):
    """Were there a second device: it is the default one, or that of the tensor that the result is like, or the one that is named."""
    monkeypatch.setattr(devices, "HERE", (TEST, cpu))
    args = MADE[f]
    with pytest.raises(DeviceError, match="no memory pool for the device test:0"):
        f(*args, device=TEST)
    if args[0] is LIKE:
        with pytest.raises(DeviceError, match="no memory pool for the device test:0"):
            f(elsewhere([1.0, 2.0]), *args[1:])
        assert f(elsewhere([1.0, 2.0]), *args[1:], device="cpu").device is cpu
    devices.set_default_device(TEST)
    assert f(*args, device="cpu").device is cpu
    with pytest.raises(DeviceError, match="one operand lies on cpu and another on test:0"):
        trace(lambda x: x + f(*args, device=TEST))(LIKE)


def test_a_number_lies_beside_the_tensor(default_again, monkeypatch):
    """Also where the default device is another one, and for numbers that were used before."""
    monkeypatch.setattr(devices, "HERE", (TEST, cpu))
    assert (LIKE * 2.5).tolist() == [2.5, 5.0]
    devices.set_default_device(TEST)
    for made in (LIKE * 2.5, LIKE * 3.5, 1 - LIKE, F.maximum(LIKE, 0.5), F.where(LIKE > 1, LIKE, 7.0), LIKE + np.ones(2, "float32")):
        assert made.device is cpu


def test_generators_draw_on_their_own_device(default_again, monkeypatch):
    rng = RNG(3, device="cpu")
    assert rng.normal(size=(2,), device="cpu0").device is cpu
    monkeypatch.setattr(devices, "HERE", (TEST, cpu))
    for draw in (rng.uniform, rng.normal, lambda device: rng.randint(5, device=device), lambda device: rng.permutation(3, device=device)):
        with pytest.raises(DeviceError, match=r"this generator draws on cpu, not on test:0; help: RNG\(seed, device='test:0'\)"):
            draw(device=TEST)


# ---- who knows its device ----------------------------------------------------------------------------------------------


def test_results_lie_where_operands_do(tmp_path):
    x = Tensor(np.arange(6, dtype="float32").reshape(2, 3))
    run = trace(lambda x: F.softmax(x, 1), capture_as_const=True)
    run(x)
    run.dump(str(tmp_path / "m.tgn"))
    made = [x + 1, x[0], x.T, F.softmax(x, 1), F.concat([x, x]), run(x), load_graph(str(tmp_path / "m.tgn"))(x), x.detach(), x.cpu()]
    assert all(y.device is cpu and y._layout.device is cpu for y in made) and x.cpu() is x
    assert run._last.run.program.device is cpu and run._last.run.device is cpu
    seen = []
    trace(lambda x: seen.append(x.device) or x + 1)(x)
    assert seen == [cpu]
    assert x.__dlpack_device__() == (1, 0)


def test_a_layout_of_another_device_is_another_layout():
    here, there = Layout((2, 3), float32), Layout((2, 3), float32, None, TEST)
    assert here is Layout((2, 3), float32, (3, 1), cpu) and here is not there and here.type is there.type
    assert "on cpu" in repr(here) and "on test:0" in repr(there)


def test_what_has_no_memory_or_programs_says_so():
    with pytest.raises(DeviceError, match="no memory pool for the device test:0"):
        native.pool_of(TEST)
    graph = parse_graph("graph g(x: f32[3]):\n    y: f32[3] = relu(x)\n    return y = y\n")
    with pytest.raises(DeviceError, match="there are no programs for the device test:0"):
        compile_graph(graph, None, [], "g", device=TEST)
    for f in (F.relu, F.exp, F.softmax, F.logsumexp, lambda x: F.sort(x), lambda x: F.matmul(x, x), lambda x: x * x):
        with pytest.raises(DeviceError, match="there are no programs for the device test:0"):
            f(elsewhere([[1.0, 2.0], [3.0, 4.0]]))
    with pytest.raises(DeviceError, match="there are no programs for the device test:0"):
        x = elsewhere([1.0, 2.0])
        x[0] = elsewhere(3.0)


# ---- two devices ---------------------------------------------------------------------------------------------------------


def test_the_rule():
    assert common_device([]) is cpu and common_device([cpu, cpu]) is cpu and common_device([TEST]) is TEST
    with pytest.raises(DeviceError, match=r"one operand lies on test:0 and another on cpu; help: x\.to\('test:0'\)"):
        common_device([TEST, cpu, TEST])


@pytest.mark.parametrize("f", [
    lambda x, y: x + y, lambda x, y: y / x, lambda x, y: F.matmul(x, y), lambda x, y: F.concat([x, y]), lambda x, y: F.where(x > 0, x, y),
    lambda x, y: F.nn.linear(x, y), lambda x, y: F.loss.square_loss(x, y), lambda x, y: x.__setitem__(0, y[0]),
    lambda x, y: y.__setitem__(0, x[0]),
], ids=range(9))  # fmt: skip
def test_operands_of_two_devices(f):
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    f(x, x + 0)  # the plan for one device is there
    for _ in range(2):
        with pytest.raises(DeviceError) as e:
            f(x, elsewhere([[1.0, 2.0], [3.0, 4.0]]))
        assert "cpu" in str(e.value) and "test:0" in str(e.value)


def test_traces_and_models_of_two_devices(tmp_path):
    x, there = Tensor([1.0, 2.0]), elsewhere([1.0, 2.0])
    two = trace(lambda x, y: x + y)
    two(x, x)
    for args in ((x, there), (there, x)):
        with pytest.raises(DeviceError, match="test:0"):
            two(*args)
    one = trace(lambda x: x["a"] * 2)
    one({"a": x})
    with pytest.raises(DeviceError, match="there are no programs for the device test:0"):
        one({"a": there})
    with pytest.raises(DeviceError, match="one operand lies on cpu and another on test:0"):
        trace(lambda x: x + there)(x)
    keep = trace(lambda x: x * 2, capture_as_const=True)
    keep(x)
    keep.dump(str(tmp_path / "m.tgn"))
    model = load_graph(str(tmp_path / "m.tgn"))
    model(x)
    with pytest.raises(DeviceError, match="one operand lies on cpu and another on test:0"):
        model(there)


def test_dlpack_of_another_device():
    with pytest.raises(BufferError, match="no number for the device test:0"):
        elsewhere([1.0]).__dlpack_device__()
    with pytest.raises(BufferError, match="test:0"):
        elsewhere([1.0]).__dlpack__()


def test_calls_do_not_look_at_devices(monkeypatch):
    """The device is part of what plans and recordings are found by anyway: it is looked at when one is made, and never after."""
    looks = []
    for name in ("compiler.plans", "tensor.tensor", "tensor.recorder", "jit.recordings"):
        module = sys.modules[f"tengen.{name}"]
        look = module.common_device
        monkeypatch.setattr(module, "common_device", lambda *a, look=look: looks.append(a) or look(*a))
    x = Tensor(np.linspace(0, 1, 35, dtype="float32").reshape(5, 7))
    step, nested = trace(lambda x, y: F.exp(x) - y), trace(lambda d: d["x"] * d["y"])
    calls = [
        lambda: x + x, lambda: F.relu(x), lambda: F.softmax(x, 1), lambda: x[1:3], lambda: x.T, lambda: F.matmul(x, x.T),
        lambda: F.concat([x, x]), lambda: x * 2.5, lambda: step(x, x), lambda: nested({"x": x, "y": x}), lambda: x.__setitem__(2, 0.0),
    ]  # fmt: skip
    for call in calls:
        call()
        call()
        looks.clear()
        call()
        call()
        assert not looks
