"""`torch.jit.save`, `torch.export` and `torch.onnx.export`: programs that leave their modules keep the bits."""

import io

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.pytorch import nn

X = torch.tensor(np.random.default_rng(0).normal(size=(4, 3)).astype("f4"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)

    def forward(self, x, scale=None):
        h = self.drop(self.norm(self.fc(x)))
        return {"h": h, "s": h.sum(1) if scale is None else h.sum(1) * scale}


def same(a, b):
    return all(a[k].numpy().tobytes() == b[k].numpy().tobytes() for k in ("h", "s"))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


def read(write):
    file = io.BytesIO()
    write(file)
    file.seek(0)
    return file


@pytest.mark.parametrize("how", [torch.jit.trace, lambda net, x: (s := torch.jit.script(net), s(x))[0]])
def test_traced_modules_are_saved_loaded_and_frozen(net, how):
    traced = how(net, X)
    assert isinstance(traced, nn.Module) and list(traced.state_dict()) == list(net.state_dict()) and traced.fc is net.fc
    wanted = net(X)
    assert same(traced(X), wanted)
    for file in (read(lambda f: torch.jit.save(traced, f)), read(traced.save)):
        loaded = torch.jit.load(file, map_location="cpu").eval()
        assert [v.numpy().tobytes() for v in loaded(X)] == [wanted[k].numpy().tobytes() for k in ("h", "s")]
        assert not list(loaded.parameters()) and {"fc.weight", "fc.bias"} <= set(loaded.state_dict())
    frozen = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    with torch.no_grad():
        net.fc.weight.zero_()
    assert same(frozen(X), wanted) and not same(traced(X), wanted)
    assert "linear" in traced.code or "matmul" in traced.code
    with pytest.raises(RuntimeError, match="not trained"):
        loaded.train()
    with pytest.raises(RuntimeError, match="net.eval"):
        torch.jit.freeze(traced.train())
    with pytest.raises(RuntimeError, match="was not traced"):
        torch.jit.save(net, io.BytesIO())


def test_exported_programs_have_open_extents_structures_and_files(net):
    batch = torch.export.Dim("batch", min=2, max=64)
    for shapes in ({"x": {0: batch}}, ({0: batch},), ((batch, None),), {"x": (torch.export.Dim.AUTO, 3)}):
        program = torch.export.export(net, (X,), dynamic_shapes=shapes)
        assert all(same(program.module()(x), net(x)) for x in (X, X[:1], torch.cat([X, X])))
    loaded = torch.export.load(read(lambda f: torch.export.save(program, f)))
    assert loaded.module()(X[:2])[0].numpy().tobytes() == net(X[:2])["h"].numpy().tobytes()
    scaled = torch.export.export(net, (X,), {"scale": torch.ones(4) * 3})
    assert same(scaled.module()(X, scale=torch.ones(4) * 2), net(X, torch.ones(4) * 2))
    with pytest.raises(ValueError):
        scaled.module()(X[:1], scale=torch.ones(1))  # closed extents
    assert {"fc.weight", "fc.bias"} <= set(program.state_dict) and len(list(program.run_decompositions().parameters())) >= 4
    with pytest.raises(RuntimeError, match="no argument 'y'"):
        torch.export.export(net, (X,), dynamic_shapes={"y": {0: batch}})
    with pytest.raises(RuntimeError, match="asked for"):
        torch.export.export(lambda x: x * 2 if x.sum() > 0 else x, (X,))


def test_onnx_files(net, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: files of ONNX are not written")
    net.train()
    file = tmp_path / "net.onnx"
    program = torch.onnx.export(
        net, (X,), str(file), input_names=["pixels"], output_names=["h", "s"], dynamic_axes={"pixels": {0: "batch"}, "h": {0: "batch"}},
        opset_version=17, do_constant_folding=True, export_params=True,
    )  # fmt: skip
    assert net.training and net.drop.training
    proto = onnx.load(file)
    assert [i.name for i in proto.graph.input] == ["pixels"] and [o.name for o in proto.graph.output] == ["h", "s"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param and proto.opset_import[0].version == 17
    assert all(same(dict(zip("hs", program(x))), net.eval()(x)) for x in (X, X[:1]))
    written = io.BytesIO()
    torch.onnx.export(net, X, written, dynamic_axes={"x": [0]})
    assert [i.name for i in onnx.load_from_string(written.getvalue()).graph.input] == ["x"]
    torch.onnx.export(net, (X, {"scale": torch.ones(4)})).save(file)
    assert len(onnx.load(file).graph.input) == 2
    with pytest.raises(RuntimeError, match="no input or output 'pixel'"):
        torch.onnx.export(net, (X,), dynamic_axes={"pixel": {0: "batch"}})
