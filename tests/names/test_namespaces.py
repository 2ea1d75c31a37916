"""MegEngine's small namespaces: each name does what it says, or says once what it does not do."""

import io
import json
import logging
import math
import pickle
import re
import sys
import warnings

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, distributed, dtr, hub, jit, logger, random, save, trace
from tengen.amp import convert_module_format, convert_tensor_format
from tengen.autodiff import GradManager
from tengen.base.download import digest_of, fetch
from tengen.base.errors import DeviceError, DistributedError, DownloadError, FileFormatError, HubError, TraceError, UsageWarning
from tengen.utils import bn_fusion, module_stats, profiler

RNG = np.random.default_rng(0)


@pytest.fixture
def loggers_again():
    yield
    for log in logger._made.values():
        log.handlers.clear()
        log.propagate = True
    logger._made.clear()
    logger._file, logger._level = None, logging.INFO


# ---- logger ------------------------------------------------------------------------------------------------------------


def test_loggers(tmp_path, capsys, loggers_again):
    log = tengen.get_logger("tests.names")
    log.info("one")
    log.debug("hidden")
    tengen.set_log_file(tmp_path / "log")
    log.warning("two")
    later = tengen.get_logger("tests.names.later")
    tengen.set_log_level("DEBUG")
    later.debug("three")
    said = capsys.readouterr().err.splitlines()
    assert [line.split(maxsplit=2)[2] for line in said] == ["one", "WRN two", "DBG three"]
    assert [line.split(maxsplit=3)[3] for line in (tmp_path / "log").read_text().splitlines()] == ["two", "three"]
    tengen.set_log_level(logging.ERROR, update_existing=False)
    assert log.level == logging.DEBUG and tengen.get_logger("tests.names.third").level == logging.ERROR
    text = io.StringIO()
    tengen.set_log_file(text)  # in place of the other
    log.info("four")
    assert "four" in text.getvalue() and "four" not in (tmp_path / "log").read_text()
    with pytest.raises(ValueError, match="'LOUD' is no level; help: one of .*DEBUG"):
        tengen.set_log_level("LOUD")
    with pytest.raises(TypeError, match="a path or an open file"):
        tengen.set_log_file(3)


# ---- device, dtr, amp, jit ------------------------------------------------------------------------------------------------


def test_memory_figures_are_true():
    before = tengen.get_allocated_memory()
    x = F.zeros(1 << 20)
    assert tengen.get_allocated_memory() - before >= 4 << 20 and tengen.get_max_allocated_memory() >= tengen.get_allocated_memory()
    del x
    tengen.reset_max_memory_stats()
    assert tengen.get_max_allocated_memory() == tengen.get_allocated_memory()
    y = F.zeros(1 << 19)
    assert tengen.get_max_allocated_memory() - before >= y.size * 4
    total, free = tengen.get_mem_status_bytes("cpu0")
    assert 0 < free < total


def test_hardware_that_is_not_there():
    versions = tengen.get_cuda_version, tengen.get_cudnn_version, tengen.get_tensorrt_version, tengen.get_cuda_driver_version
    assert [version() for version in versions] == [None] * 4
    assert not tengen.is_cuda_available() and not tengen.is_rocm_available()
    for f in (tengen.get_cuda_compute_capability, tengen.get_cuda_device_property):
        with pytest.raises(DeviceError, match="no device 'cuda:0'; devices here: cpu"):
            f(0)


SAYS_ONCE = {
    "prealloc": (lambda: tengen.set_prealloc_config(growth_factor=3.0), "a pool of 'cuda'"),
    "record_only": (lambda: trace(abs, record_only=True), "run.trace"),
    "profiling": (lambda: trace(abs, profiling=True), "tengen.profile"),
    "config": (lambda: setattr(tengen.config, "async_level", 2), "async_level = 2 changes nothing: it is 0 here"),
    "tensor format": (lambda: convert_tensor_format(F.ones((1, 2, 3, 4))), "changes nothing"),
    "module format": (lambda: convert_module_format(M.Linear(2, 2)), "changes nothing"),
}


@pytest.mark.parametrize("name", SAYS_ONCE)
def test_what_has_no_meaning_says_so_once(name):
    call, words = SAYS_ONCE[name]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            call()
    assert [w.category for w in said] == [UsageWarning]
    assert re.search(words, str(said[0].message))


def test_settings_of_dtr():
    assert (dtr.eviction_threshold, dtr.evictee_minimum_size, dtr.enable_sqrt_sampling) == (0, 1 << 20, False)
    try:
        dtr.eviction_threshold, dtr.evictee_minimum_size, dtr.enable_sqrt_sampling = "5GB", 64, True
        assert (dtr.eviction_threshold, dtr.evictee_minimum_size, dtr.enable_sqrt_sampling) == (5 << 30, 64, True)
        for bad in ("much", -1, 1.5, True):
            with pytest.raises(ValueError, match="is no size"):
                dtr.eviction_threshold = bad
    finally:
        dtr.eviction_threshold, dtr.evictee_minimum_size, dtr.enable_sqrt_sampling = 0, 1 << 20, False


def test_configs_are_checked():
    assert jit.DTRConfig(eviction_threshold=5).recomp_time_factor == 1 and jit.GraphOptimizationConfig().jit_fuse_reduce is None
    for make, words in (
        (lambda: jit.DTRConfig(), "eviction_threshold=0"), (lambda: jit.SublinearMemoryConfig(num_worker=0), "num_worker=0"),
        (lambda: jit.SublinearMemoryConfig(thresh_nr_try="ten"), "thresh_nr_try"), (lambda: jit.GraphOptimizationConfig("yes"), "'yes'"),
        (lambda: jit.partial_trace(abs, backend="xla"), "backend='xla'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            make()


def test_partial_trace_and_exclude():
    net, x = M.Linear(3, 2), Tensor(RNG.standard_normal((4, 3)).astype("f4"))
    want = net(x).numpy().tobytes()
    assert jit.partial_trace(net)(x).numpy().tobytes() == want and net.forward.stats()
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(net(x).sum())
    assert net.weight.grad.numpy().tobytes() == np.broadcast_to(x.numpy().sum(0), (2, 3)).astype("f4").tobytes()
    with jit.exclude_from_trace():
        assert (x + 1).numpy().shape == (4, 3)

    @jit.partial_trace(without_host=True, symbolic=True)
    def f(x):
        with jit.exclude_from_trace():
            return x + 1

    with pytest.raises(jit.TraceError, match="no place for Python"):
        f(x)
    assert jit.TraceError is TraceError


# ---- distributed ----------------------------------------------------------------------------------------------------------


def test_one_process():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    gm = GradManager().attach(x)
    for name in F.distributed.MODES:
        with gm:
            y = getattr(F.distributed, name)(x, distributed.WORLD)
            assert y is not x and y.tolist() == x.tolist(), name
            gm.backward((y * y).sum())
        assert x.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]
        x.grad = None
        y += 1  # and not x
        assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert trace(lambda t: F.distributed.all_reduce_sum(t) * 2)(x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert (distributed.get_rank(), distributed.get_world_size(), distributed.is_distributed()) == (0, 1, False)
    assert (distributed.WORLD.size, distributed.WORLD.rank, distributed.WORLD.key) == (1, 0, "0")
    assert distributed.functional is F.distributed
    distributed.group_barrier()
    distributed.init_process_group("localhost", 0, 1, 0, 0)
    distributed.bcast_list_([x])
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with distributed.override_backend("nccl"):
        assert distributed.get_backend() == "nccl"
    assert distributed.get_backend() == "auto"


def test_the_launcher_runs_the_function():
    @distributed.launcher(n_gpus=1)
    @distributed.synchronized
    def work(a, b=1):
        return distributed.get_rank(), a + b

    assert work(3, b=4) == [(0, 7)] and distributed.launcher(lambda: 5)() == [5]


@pytest.mark.parametrize("call, words", [
    (lambda: distributed.launcher(abs, n_gpus=1, world_size=4), "world_size=4"),
    (lambda: distributed.init_process_group(world_size=2), "world_size=2"), (lambda: distributed.new_group([0, 1]), r"ranks \[0, 1\]"),
    (lambda: F.distributed.remote_send(F.ones(1), 1), "rank 1"), (lambda: F.distributed.remote_recv(1), "rank 1"),
])  # fmt: skip
def test_more_processes_than_there_are(call, words):
    with pytest.raises(DistributedError, match=words):
        call()


def test_other_mistakes_with_processes():
    for call, error in (
        (lambda: distributed.make_allreduce_cb("median"), ValueError),
        (lambda: F.distributed.collective_comm(F.ones(1), "shout"), ValueError),
        (lambda: F.distributed.all_gather(F.ones(2), axis=1), IndexError),
        (lambda: F.distributed.broadcast(F.ones(1), device="gpu0"), DeviceError),
        (lambda: distributed.override_backend("pigeon").__enter__(), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()


def test_sync_batch_norm_is_batch_norm():
    x = Tensor(RNG.standard_normal((4, 3, 5, 5)).astype("f4"))
    nets = M.SyncBatchNorm(3, group=distributed.WORLD), M.BatchNorm2d(3)
    assert nets[0](x).numpy().tobytes() == nets[1](x).numpy().tobytes()
    assert nets[0].running_var.numpy().tobytes() == nets[1].running_var.numpy().tobytes()
    y = F.sync_batch_norm(x, nets[1].running_mean, nets[1].running_var)
    np.testing.assert_allclose(y.numpy(), nets[1].eval()(x).numpy(), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="eps_mode='max'"):
        F.sync_batch_norm(x, eps_mode="max", training=True)


# ---- hub, downloads ----------------------------------------------------------------------------------------------------------

CONF = '''
import parts
from tengen import hub

def small(width=3):
    """A small network."""
    return parts.net(width)

@hub.pretrained({weights!r}, sha256={digest!r})
def trained():
    return parts.net(3)

_hidden = small
'''


@pytest.fixture
def folder(tmp_path):
    weights = tmp_path / "weights.tgn"
    save(M.Linear(2, 3).state_dict(), weights)
    (tmp_path / "parts.py").write_text("from tengen import module as M\ndef net(width): return M.Linear(2, width)\n")
    (tmp_path / "hubconf.py").write_text(CONF.format(weights=weights.as_uri(), digest=digest_of(weights)))
    return tmp_path


def test_two_folders_have_modules_of_one_name(tmp_path):
    for width in (2, 3):
        (tmp_path / f"{width}").mkdir()
        (tmp_path / f"{width}" / "beside.py").write_text(f"WIDTH = {width}\n")
        (tmp_path / f"{width}" / "hubconf.py").write_text("import beside\ndef width(): return beside.WIDTH\n")
    assert [hub.load(tmp_path / f"{width}", "width") for width in (2, 3, 2)] == [2, 3, 2]


def test_hub_loads_from_a_folder(folder):
    assert {"small", "trained"} <= set(hub.list(folder)) and "_hidden" not in hub.list(str(folder))
    assert hub.help(str(folder), "small") == "A small network."
    assert hub.load(folder, "small", width=5).out_features == hub.load(folder / "hubconf.py", "small", 5).out_features == 5
    net = hub.load(folder, "trained", pretrained=True)
    assert net.weight.numpy().tobytes() == tengen.load(folder / "weights.tgn")["weight"].tobytes()
    assert str(folder) not in sys.path
    for repo, entry, words in (
        (folder, "smal", "one of .*small"), (folder / "no", "x", "clone"), ("MegEngine/models", "x", "code is not downloaded"),
    ):  # fmt: skip
        with pytest.raises(HubError, match=words):
            hub.load(repo, entry)


def test_weights_are_checked(folder):
    (folder / "weights.tgn").write_bytes((folder / "weights.tgn").read_bytes() + b" ")
    with pytest.raises(DownloadError, match="has the SHA-256"):
        hub.load(folder, "trained", pretrained=True)
    with pytest.raises(DownloadError, match="which bytes are meant.*sha256="):
        hub.load_serialized_obj_from_url("https://example.invalid/net.tgn")
    (folder / "net.pkl").write_bytes(pickle.dumps({"w": 1}))
    with pytest.raises(FileFormatError):
        hub.load_serialized_obj_from_url(str(folder / "net.pkl"))


def test_fetch(tmp_path):
    source, there = tmp_path / "a b", tmp_path / "new" / "b"
    source.write_bytes(b"x" * 300_000)
    digest = digest_of(source)
    assert fetch(source.as_uri(), there, digest).read_bytes() == source.read_bytes()
    source.unlink()
    assert fetch(source.as_uri(), there, digest.upper()) == there  # it is there
    source.write_bytes(b"other")
    for url, words in ((source.as_uri(), "was expected; it was not kept"), ("ftp://x/y", "only http"), ("file://host/x", "this machine"),
                       ("http://127.0.0.1:9/x", "cannot be brought"), (str(tmp_path / "none"), "cannot be brought")):  # fmt: skip
        with pytest.raises(DownloadError, match=words):
            fetch(url, there, "0" * 64, timeout=5)
        assert there.stat().st_size == 300_000 and len(list(there.parent.iterdir())) == 1
    with pytest.raises(ValueError, match="not a SHA-256"):
        fetch(str(source), there, "123")


# ---- utils --------------------------------------------------------------------------------------------------------------------


def test_module_stats(capsys, loggers_again):
    """The counts beside those of MegEngine 1.13 for the same network."""
    net = M.Sequential(M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8), M.ReLU(), M.MaxPool2d(2), M.Flatten(1), M.Linear(128, 10))
    total, tables = module_stats.module_stats(net, input_shapes=(2, 3, 8, 8))
    rows = {r["name"]: r["flops_num"] for r in tables.flops[:-1]}
    assert rows == {"0": 28672, "1": 7168, "3": 1024, "5": 20 * 129} and total.flops == sum(rows.values()) == tables.flops[-1]["flops_num"]
    assert total.param_dims == 216 + 8 + 16 + 1290 and total.param_size == 4 * total.param_dims
    assert total.act_dims == 1024 + 1024 + 256 + 20 and math.isclose(sum(r["ratio"] for r in tables.flops[:-1]), 1)
    said = capsys.readouterr().err
    assert "28.672 KOPs" in said and "total_flops" in said and "0.weight" in said and net.training
    assert not net[0]._forward_hooks

    class Twice(M.Module):
        def forward(self, x):
            return x * 2

    @module_stats.register_flops(Twice)
    def count(m, ins, outs):
        return outs[0].size

    assert module_stats.module_stats(Twice(), inputs=np.ones((3, 4), "f4"), logging_to_stdout=False)[0].flops == 12
    with pytest.raises(ValueError, match="give inputs"):
        module_stats.module_stats(net)


@pytest.mark.parametrize("make", [
    lambda: M.Conv2d(4, 6, 3, padding=1), lambda: M.Conv2d(4, 6, 3, groups=2, bias=False, padding_mode="reflect", padding=1),
    lambda: M.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), lambda: M.ConvTranspose2d(4, 6, 2, groups=2, bias=False),
])  # fmt: skip
@pytest.mark.parametrize("relu", [None, M.ReLU()])
def test_bn_fusion_of_convolutions(make, relu):
    random.seed(1)
    conv, bn, x = make(), M.BatchNorm2d(6), Tensor(RNG.standard_normal((2, 4, 5, 5)).astype("f4"))
    for t in (bn.weight, bn.bias, bn.running_mean):
        t._reset(Tensor(RNG.standard_normal(t.shape).astype("f4")))
    bn.running_var._reset(Tensor(RNG.uniform(0.5, 2, bn.running_var.shape).astype("f4")))
    conv.eval(), bn.eval()
    want = bn(conv(x)).numpy()
    got = bn_fusion.fuse_conv_bn_relu_module(conv, bn, relu)(x).numpy()
    np.testing.assert_allclose(got, np.maximum(want, 0) if relu else want, rtol=1e-5, atol=2e-6)
    with pytest.raises(ValueError, match="no running statistics"):
        bn_fusion.fuse_conv_bn_relu_module(conv, M.BatchNorm2d(6, track_running_stats=False))


def test_bn_fusion_of_linear_layers():
    linear, bn, x = M.Linear(4, 6), M.BatchNorm1d(6, affine=False).eval(), Tensor(RNG.standard_normal((5, 4)).astype("f4"))
    bn.running_mean._reset(Tensor(RNG.standard_normal(bn.running_mean.shape).astype("f4")))
    fused = bn_fusion.fuse_linear_bn_relu_module(linear, bn, M.ReLU())
    np.testing.assert_allclose(fused(x).numpy(), np.maximum(bn(linear(x)).numpy(), 0), rtol=1e-5, atol=1e-6)
    assert isinstance(fused, M.LinearRelu) and fused.training and bn_fusion.fuse_linear_bn_relu_module(linear) is not linear


def test_profiles_by_megengines_names(tmp_path):
    @profiler.profile(str(tmp_path))
    def work():
        assert profiler.is_profiling()
        return F.ones(8) + 2

    work(), work()
    assert not profiler.is_profiling() and len(list(tmp_path.iterdir())) == 2
    merged = json.loads(profiler.merge_trace_events(tmp_path).read_text())["traceEvents"]
    assert {e["pid"] for e in merged} == {0, 1}
    for call, error in (
        (lambda: profiler.Profiler(format="memory_flow.svg"), ValueError), (lambda: profiler.merge_trace_events(tmp_path / "none"), ValueError),
        (lambda: profiler.Profiler(colour=1), TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    (tmp_path / "x.chrome_timeline.json").write_text("{}")
    with pytest.raises(FileFormatError, match="no timeline"):
        profiler.merge_trace_events(tmp_path)
