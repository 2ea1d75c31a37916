"""`Server` and `Client`: values that all processes see, waiting, and what goes wrong."""

import sys
import threading
from pathlib import Path

import pytest

from tengen import distributed as dist
from tengen.base.config import config
from tengen.base.errors import DistributedError

sys.path.insert(0, str(Path(__file__).parent))  # the ranks import what they call by its name
import jobs_collectives


@pytest.fixture
def server():
    made = dist.Server()
    yield made
    made.close()


def test_ranks_tell_one_another():
    want = [{"rank": q, "list": [1.5, "a", None], "bytes": bytes([0, q])} for q in range(3)]
    found = dist.launcher(jobs_collectives.told, n_gpus=3, backend="threads")()
    assert [f[0] for f in found] == [want] * 3 and [f[1] for f in found] == [want[0], None, None] and all(f[2] for f in found)


def test_a_reader_waits_for_a_value(server):
    client, found = dist.Client("localhost", server.py_server_port), []
    reader = threading.Thread(target=lambda: found.append(client.user_pop("later")))
    reader.start()
    client.user_set("later", b"1")
    reader.join(10)
    assert found == [b"1"]


def test_what_goes_wrong(server, monkeypatch):
    from tengen.distributed import server as module

    monkeypatch.setattr(config, "distributed_timeout", 0.2)
    monkeypatch.setattr(module, "HELD", 0.1)
    client = dist.Client("localhost", server.py_server_port)
    for call, words in ((lambda: client.user_get("nothing"), "waited 0.2 s for the value of 'nothing'"),
                        (lambda: client.group_barrier("b", 2), "2 clients at the barrier 'b'")):  # fmt: skip
        with pytest.raises(DistributedError, match=words):
            call()
    for value in (object(), 1 << 40):
        with pytest.raises(TypeError, match="help: numbers of 32 bits"):
            client.user_set("x", value)
    with pytest.raises(DistributedError, match="refused rub_out"):
        client._call("rub_out", 1)
    with pytest.raises(OSError):
        dist.Server(server.py_server_port)
    port = server.py_server_port
    gone = dist.Server()
    gone.close()
    with pytest.raises(DistributedError, match="does not answer"):
        dist.Client("localhost", gone.py_server_port).user_get("x")
    assert port != gone.py_server_port


def test_a_process_that_is_alone_has_one_too():
    dist.get_client().user_set("a", [1, 2])
    assert dist.get_client().user_get("a") == [1, 2] and dist.get_py_server_addr()[1] > 0
