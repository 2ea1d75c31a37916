"""Models over HTTP: a real server on a port of this machine, asked by http.client; bodies also as a client of the field writes them."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from each import each

import tengen.functional as F
from tengen import Parameter, Predictor, Tensor, load_graph, trace
from tengen.base.errors import ArgumentError, ConfigError
from tengen.serving import RequestError, Server, protocol
from tengen.serving import server as servers

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)

X = np.random.default_rng(0).standard_normal((5, 6)).astype("f4")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """soft: softmax(x @ w) and its logarithm, for any batch. take: elements of a table by index. kinds: inputs of many dtypes, twice."""
    folder = tmp_path_factory.mktemp("models")
    w, table = Tensor(np.linspace(-1, 1, 24, dtype="f4").reshape(6, 4)), Tensor(np.arange(6, dtype="f4"))

    def soft(x):
        y = F.softmax(x @ w, axis=1)
        return y, F.log(y)

    f = trace(soft, dynamic_axes={"x": {0: "batch"}})
    f(Tensor(X))
    f.dump(folder / "soft.tgn", arg_names=["x"], output_names=["y", "log y"])
    f = trace(lambda i: table[i], example_input=Tensor(np.array([1, 2])))
    f.dump(folder / "take.tgn", arg_names=["i"], output_names=["row"])
    kinds = {k: Tensor(np.ones(2, "f4")).astype(k) for k in protocol.DATATYPES if k not in ("uint16", "uint32", "uint64")}
    f = trace(lambda *given: tuple(F.concat([a, a]) for a in given))
    f(*kinds.values())
    f.dump(folder / "kinds.tgn", arg_names=list(kinds), output_names=[f"{k} twice" for k in kinds])
    return {p.stem: p for p in folder.iterdir()}


@pytest.fixture(scope="module")
def server(files):
    with Server(files, port=0, max_request=100_000) as s:
        yield s


def ask(server, path, body=None, headers=(), method=None):
    """(status, headers, body) of an answer."""
    c = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    try:
        c.request(method or ("GET" if body is None else "POST"), path, body, dict(headers))
        answer = c.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        c.close()


def infer(server, asked, model="soft", status=200):
    found, _, body = ask(server, f"/v2/models/{model}/infer", asked if isinstance(asked, bytes) else json.dumps(asked).encode())
    assert found == status, body
    return json.loads(body)


def x_entry(**changes):
    return {"name": "x", "datatype": "FP32", "shape": list(X.shape), "data": X.tolist()} | changes


def test_what_is_there(server):
    for path in ("/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/soft/ready", "/v2/models/soft/versions/1"):
        assert ask(server, path)[0] == 200
    about = json.loads(ask(server, "/v2/models/soft")[2])
    assert about == {
        "name": "soft", "versions": ["1"], "platform": "tengen", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 6]}],
        "outputs": [{"name": n, "datatype": "FP32", "shape": [-1, 4]} for n in ("y", "log y")],
    }  # fmt: skip
    missing = {"/v2/models/none": "there are", "/v2/models/soft/versions/2": "version 1", "/v3": "Not Found"}
    for path, words in missing.items():
        status, _, body = ask(server, path)
        assert status == 404 and words in json.loads(body)["error"]
    assert ask(server, "/v2/models/soft/infer")[0] == 405


def test_bits_by_json_and_by_bytes(server, files):
    want = [t.numpy() for t in load_graph(files["soft"])(x=X)]
    for data in (X.tolist(), X.reshape(-1).tolist()):
        answer = infer(server, {"id": "7", "inputs": [x_entry(data=data)]})
        assert (answer["id"], answer["model_name"], answer["model_version"]) == ("7", "soft", "1")
        for out, a in zip(answer["outputs"], want):
            assert np.float32(out["data"]).reshape(out["shape"]).tobytes() == a.tobytes()
    entry = {"name": "x", "datatype": "FP32", "shape": [5, 6], "parameters": {"binary_data_size": X.nbytes}}
    outputs = [{"name": "log y", "parameters": {"binary_data": True}}, {"name": "y"}]
    text = json.dumps({"inputs": [entry], "outputs": outputs}).encode()
    status, headers, body = ask(server, "/v2/models/soft/infer", text + X.tobytes(), {servers.JSON_SIZE: str(len(text))})
    assert status == 200 and headers["Content-Type"] == "application/octet-stream"
    n = int(headers[servers.JSON_SIZE])
    first, second = json.loads(body[:n])["outputs"]
    assert first["name"] == "log y" and first["parameters"] == {"binary_data_size": want[1].nbytes} and body[n:] == want[1].tobytes()
    assert np.float32(second["data"]).tobytes() == want[0].tobytes()


def test_every_datatype_comes_back_as_it_was(server, files):
    model = load_graph(files["kinds"])
    given = {p.name: np.array([0, 1]).astype(p.dtype.numpy) for p in model.inputs}
    entries = [{"name": p.name, "datatype": protocol.datatype(p), "shape": [2]} for p in model.inputs]
    data = lambda name: {"parameters": {"binary_data_size": 4}} if name == "bfloat16" else {"data": given[name].tolist()}
    as_json = [e | data(e["name"]) for e in entries]
    text = json.dumps({"inputs": as_json}).encode()
    status, _, body = ask(server, "/v2/models/kinds/infer", text + given["bfloat16"].tobytes(), {servers.JSON_SIZE: str(len(text))})
    assert status == 200, body
    outputs = json.loads(body)["outputs"]
    assert len(outputs) == len(given) and all(o["data"] == [0, 1, 0, 1] and o["shape"] == [4] for o in outputs)
    as_bytes = [e | {"parameters": {"binary_data_size": given[e["name"]].nbytes}} for e in entries]
    text = json.dumps({"inputs": as_bytes, "parameters": {"binary_data_output": True}}).encode()
    raw = b"".join(a.tobytes() for a in given.values())
    _, headers, body = ask(server, "/v2/models/kinds/infer", text + raw, {servers.JSON_SIZE: str(len(text))})
    assert body[int(headers[servers.JSON_SIZE]) :] == b"".join(a.tobytes() * 2 for a in given.values())


WRONG = {
    b"": "no JSON", b"[1]": "an object", b"\xff": "no JSON", b"[" * 9999: "no JSON", b'{"inputs": [NaN]}': "NaN is no JSON",
    b"{}": "inputs is missing",
}  # fmt: skip
WRONG_REQUESTS = {
    "an input twice": ({"inputs": [x_entry(), x_entry()]}, "x twice"),
    "an unknown input": ({"inputs": [x_entry(name="z")]}, "the model's are x"),
    "no input": ({"inputs": []}, "inputs are missing: x: f32[batch,6]"),
    "an input that is none": ({"inputs": [3]}, "the model's are x"),
    "another datatype": ({"inputs": [x_entry(datatype="FP64")]}, "the model takes FP32"),
    "another shape": ({"inputs": [x_entry(shape=[6, 5], data=X.reshape(-1).tolist())]}, "x: f32[batch,6] was given f32[6,5]"),
    "fewer numbers": ({"inputs": [x_entry(data=[1, 2])]}, "30 numbers"),
    "lists that differ": ({"inputs": [x_entry(data=[[1], [1, 2]])]}, "differ in length"),
    "texts": ({"inputs": [x_entry(shape=[1, 6], data=["1"] * 6)]}, "no numbers of FP32"),
    "bools": ({"inputs": [x_entry(shape=[1, 6], data=[True] * 6)]}, "no numbers of FP32"),
    "one number": ({"inputs": [x_entry(shape=[1], data=3)]}, "flat that is 1"),
    "beyond float32": ({"inputs": [x_entry(shape=[1, 6], data=[1e39] * 6)]}, "beyond the range of FP32"),
    "beyond float64": (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [1e999, 1, 1, 1, 1, 1]}]}', "beyond the range"),
    "a shape that no array has": ({"inputs": [x_entry(shape=[0, 10**30], data=[])]}, "no array has"),
    "a negative extent": ({"inputs": [x_entry(shape=[-1, 6])]}, "at least 0"),
    "neither data nor bytes": ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [5, 6]}]}, "either data or binary_data_size"),
    "bytes that are not there": ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [5, 6], "parameters": {"binary_data_size": 120}}]},
                                 "0 are left"),
    "another number of bytes": ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [5, 6], "parameters": {"binary_data_size": 12}}]},
                                "has 120 bytes"),
    "a parameter": ({"inputs": [x_entry()], "parameters": {"priority": 3}}, '"priority"'),
    "a parameter of another kind": ({"inputs": [x_entry()], "parameters": {"timeout": "3"}}, "int is wanted"),
    "a negative timeout": ({"inputs": [x_entry()], "parameters": {"timeout": -3}}, "at least 0"),
    "a key": ({"inputs": [x_entry()], "input": []}, "which means nothing here"),
    "an unknown output": ({"inputs": [x_entry()], "outputs": [{"name": "z"}]}, "the model's are y, log y"),
    "an id": ({"inputs": [x_entry()], "id": 3}, "a text is wanted"),
}  # fmt: skip


def test_wrong_requests_say_what_is_wrong(server):
    cases = {repr(asked)[:20]: (asked, words) for asked, words in WRONG.items()} | WRONG_REQUESTS

    @each("name", cases)
    def all_of_them(name):
        asked, words = cases[name]
        answer = infer(server, asked, status=400)
        assert words in answer["error"] and len(answer["error"]) < 400, answer

    all_of_them()


def test_wrong_headers_and_sizes(server):
    body = json.dumps({"inputs": [x_entry()]}).encode()
    for size, words in (("x", "a number of bytes"), ("99999", "the body has")):
        status, _, text = ask(server, "/v2/models/soft/infer", body, {servers.JSON_SIZE: size})
        assert status == 400 and words in json.loads(text)["error"]
    status, _, text = ask(server, "/v2/models/soft/infer", body + b"12", {servers.JSON_SIZE: str(len(body))})
    assert status == 400 and "2 bytes of the body belong to no input" in json.loads(text)["error"]
    assert ask(server, "/v2/models/soft/infer", body, {"Content-Encoding": "gzip"})[0] == 415
    assert ask(server, "/v2/models/soft/infer", b" " * 100_001)[0] == 413
    infer(server, {"inputs": [x_entry()]})  # it still answers


def test_a_body_of_unknown_length_is_bounded_too(server):
    def chunks():
        for _ in range(200):
            yield b" " * 1000

    c = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    try:
        c.request("POST", "/v2/models/soft/infer", chunks(), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        assert c.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has answered and closed before all was sent
    finally:
        c.close()
    infer(server, {"inputs": [x_entry()]})


def test_errors_of_runs(server):
    """An index outside of the table is the request's mistake; a NaN or an infinity needs bytes."""
    i = {"name": "i", "datatype": "INT64", "shape": [2]}
    assert infer(server, {"inputs": [i | {"data": [5, 0]}]}, "take")["outputs"][0]["data"] == [5.0, 0.0]
    assert "index" in infer(server, {"inputs": [i | {"data": [6, 0]}]}, "take", 400)["error"]
    for data in ([0.5, 0], [2**63, 0], [True, False]):
        assert "INT64" in infer(server, {"inputs": [i | {"data": data}]}, "take", 400)["error"]
    big = x_entry(shape=[1, 6], data=[3e38] * 6)
    assert "binary_data" in infer(server, {"inputs": [big]}, status=400)["error"]
    status, headers, body = ask(
        server, "/v2/models/soft/infer", json.dumps({"inputs": [big], "parameters": {"binary_data_output": True}}).encode()
    )
    assert status == 200 and not np.isfinite(np.frombuffer(body[int(headers[servers.JSON_SIZE]) :], "f4")).all()


class Gate:
    """A model whose run waits until it may go on."""

    def __init__(self, model):
        self.model, self.open, self.began = model, threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *tensors):
        self.began.set()
        assert self.open.wait(60)
        return self.model(*tensors)


def test_waiting_joining_and_giving_up(files):
    predictor = Predictor(load_graph(files["soft"]), max_batch=64, max_waiting=4, timeout=60)
    gate = predictor.model = Gate(predictor.model)
    answers = {}
    asked = json.dumps({"inputs": [x_entry()]}).encode()
    with Server({"soft": predictor}, port=0) as s:

        def client(i):
            answers[i] = ask(s, "/v2/models/soft/infer", asked)

        clients = [threading.Thread(target=client, args=(i,)) for i in range(5)]
        clients[0].start()
        assert gate.began.wait(60)
        for c in clients[1:]:
            c.start()
        while predictor.waiting < 4:
            time.sleep(0.01)
        status, headers, body = ask(s, "/v2/models/soft/infer", asked)
        assert (status, headers["Retry-After"]) == (503, "1") and "at most 4" in json.loads(body)["error"]
        assert b'tengen_waiting{model="soft"} 4.0' in ask(s, "/metrics")[2]
        gate.open.set()
        for c in clients:
            c.join()
        assert {a[0] for a in answers.values()} == {200} and len({a[2] for a in answers.values()}) == 1
        assert predictor.statistics.runs == 2 and predictor.statistics.examples == 25  # the four that waited are one run
        gate.open.clear()
        hasty = json.dumps({"inputs": [x_entry()], "parameters": {"timeout": 10_000}}).encode()
        status, _, body = ask(s, "/v2/models/soft/infer", hasty)
        assert status == 504 and "0.01 s" in json.loads(body)["error"]
        gate.open.set()
        metrics = ask(s, "/metrics")[2].decode()
        assert 'tengen_requests_total{model="soft"}' in metrics and 'tengen_seconds_total{model="soft"}' in metrics
    predictor.close()


def test_what_cannot_be_served(files, monkeypatch):
    state = Parameter(np.zeros(2, "f4"))

    def counting(x):
        state._reset(state + x)
        return state * 1

    f = trace(counting)
    f(Tensor([1.0, 2.0]))
    f.dump(files["soft"].parent / "counting.state", arg_names=["x"])
    f = trace(lambda x: x * 1, example_input=Tensor(np.ones(2, "complex64")))
    f.dump(files["soft"].parent / "complex.file", arg_names=["x"])
    wrong = {
        "empty": ({}, {}, "models is empty"), "a/b": ({"a/b": files["soft"]}, {}, "part of an address"),
        "states": ({"m": files["soft"].parent / "counting.state"}, {}, "has states"),
        "complex": ({"m": files["soft"].parent / "complex.file"}, {}, "no datatype for x: c64"),
        "size": ({"m": files["soft"]}, {"max_request": "big"}, "max_request='big'"),
        "batch": ({"m": files["take"]}, {"max_batch": 3}, "open extent"),
        "wait": ({"m": files["soft"]}, {"wait": 0.1}, "needs max_batch"),
    }  # fmt: skip
    wrong |= {f"port {p}": ({"m": files["soft"]}, {"port": p}, "port=.* from 0") for p in (-1, 70_000, "8000", True)}
    for models, how, words in wrong.values():
        with pytest.raises(ConfigError, match=words):
            Server(models, **{"port": 0, **how})
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError):
        Server({"m": files["soft"]}, port=taken.getsockname()[1])
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ArgumentError, match=r"pip install 'tengen\[serve\]'"):
        Server({"m": files["soft"]}, port=0)


ODD = [
    None, True, -1, 2**70, 1e400, 0.5, "x", "", "\ud800", [], [[]], [[1], 2], {}, {"a": 1}, [2.5] * 6, {"binary_data_size": 24},
    {"binary_data": 1},
]  # fmt: skip


def changed(value, r):
    """A JSON value with one part of it, at any depth, replaced, left out or doubled."""
    if isinstance(value, dict | list) and value and r.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[r.integers(len(keys))]
        copy = value.copy()
        if (chance := r.random()) < 0.1:
            del copy[key]
        elif chance < 0.2 and isinstance(copy, list):
            copy.append(copy[key])
        else:
            copy[key] = changed(copy[key], r)
        return copy
    return ODD[r.integers(len(ODD))]


def test_bodies_of_any_content(files):
    """Changed requests, in their structure and in their bytes, give arrays or a RequestError, and nothing else."""
    model = load_graph(files["soft"])
    x = x_entry(shape=[1, 6], data=[1, 2.5, 3, 4, 5, 6])
    asked = {"id": "a", "parameters": {"timeout": 3}, "inputs": [x], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    r, parsed = np.random.default_rng(3), 0
    for i in range(4000):
        text = json.dumps(changed(asked, r)).encode()
        body = bytearray(text + r.bytes(24 * (i % 2)))
        if i % 4 == 3:
            at = r.integers(len(body))
            body[at : at + r.integers(4)] = r.bytes(r.integers(4))
        try:
            parsed += len(protocol.parse(bytes(body), len(text) if i % 3 else None, model).arrays)
        except RequestError:
            pass
    assert parsed > 200


def test_the_command(files, tmp_path):
    """Starts, says where, answers, and ends on SIGTERM with what has begun answered."""
    errors = (tmp_path / "log").open("w+")
    child = subprocess.Popen(
        [sys.executable, "-m", "tengen", "serve", "--port", "0", str(files["soft"]), f"other={files['take']}"],
        stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        first, second = child.stdout.readline(), child.stdout.readline()
        assert "/v2/models/soft/infer  takes x: f32[batch,6], gives y: f32[batch,4]" in first and "/other/infer" in second
        there = type("There", (), {"url": first.partition("/v2")[0]})
        assert infer(there, {"inputs": [x_entry()]})["model_name"] == "soft"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) in (0, -signal.SIGTERM)
        errors.seek(0)
        log = errors.read()
        assert "POST /v2/models/soft/infer" in log and "Traceback" not in log
    finally:
        child.kill()
        child.stdout.close()
        child.wait()
        errors.close()


def test_a_client_of_the_field(server, files):
    """Triton's own client, by JSON and by bytes."""
    client = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed: pip install 'tritonclient[http]'")
    want = [t.numpy() for t in load_graph(files["soft"])(x=X)]
    with client.InferenceServerClient(server.url.removeprefix("http://")) as c:
        assert c.is_server_live() and c.is_server_ready() and c.is_model_ready("soft")
        assert c.get_model_metadata("soft")["inputs"][0]["shape"] == [-1, 6]
        for as_bytes in (False, True):
            x = client.InferInput("x", list(X.shape), "FP32")
            x.set_data_from_numpy(X, binary_data=as_bytes)
            outputs = [client.InferRequestedOutput(n, binary_data=as_bytes) for n in ("y", "log y")]
            found = c.infer("soft", [x], outputs=outputs, request_id="9")
            assert [found.as_numpy(n).tobytes() for n in ("y", "log y")] == [a.tobytes() for a in want]
        with pytest.raises(Exception, match="inputs are missing"):
            c.infer("soft", [])
