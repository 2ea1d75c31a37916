"""Packages of others: what is said when one is not installed, and when something else has its name."""

import sys
import types

import pytest

from tengen.base import extras
from tengen.base.errors import ArgumentError
from tengen.interop import onnx as onnx_files
from tengen.interop.tflite import schema


def test_what_is_not_installed():
    with pytest.raises(ArgumentError, match=r"^Files need the package not_there_7 \(No module named 'not_there_7'\); help: pip install"):
        extras.package("not_there_7", "Model", "Files need")


def test_a_folder_or_a_file_that_has_the_name(tmp_path, monkeypatch):
    (tmp_path / "stands_in_7").mkdir()
    (tmp_path / "stands_in_8.py").write_text("x = 1")
    (tmp_path / "right_7.py").write_text("class Model: pass")
    monkeypatch.syspath_prepend(tmp_path)
    for name, where in (("stands_in_7", "stands_in_7"), ("stands_in_8", "stands_in_8.py")):
        with pytest.raises(ArgumentError) as e:
            extras.package(name, "Model", "Files need")
        assert f"is something else, in {tmp_path / where}: it has no Model; help: another name for that folder or file" in str(e.value)
    assert extras.package("right_7", "Model", "Files need").Model


def test_the_readers_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", types.ModuleType("onnx"))
    with pytest.raises(ArgumentError, match="ONNX files need the package onnx, and what Python imports by this name is something else"):
        onnx_files.load(b"")
    monkeypatch.setitem(sys.modules, "tflite", types.ModuleType("tflite"))
    with pytest.raises(ArgumentError, match="TFLite files need the package tflite, and what Python imports by this name is something else"):
        schema.package.__wrapped__()
