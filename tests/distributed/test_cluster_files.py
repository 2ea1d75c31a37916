"""The example files for clusters: Kubernetes' MPIJob by its schema, Slurm's job by its options; and that both start what there is."""

import argparse
import ast
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tengen.distributed import rank

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "cluster"

# The part of the schema of kubeflow.org/v2beta1 MPIJob, and of Kubernetes' pods, that a training job uses: {key: type}, "!" where it must be
# there; no other key is allowed.
MOUNT = {"name!": str, "mountPath!": str, "readOnly": bool, "subPath": str}
CONTAINER = {
    "name!": str, "image!": str, "command": [str], "args": [str], "env": [{"name!": str, "value": str}], "workingDir": str,
    "resources": {"limits": {"cpu": str, "memory": str}, "requests": {"cpu": str, "memory": str}}, "volumeMounts": [MOUNT],
}  # fmt: skip
POD = {"spec!": {"containers!": [CONTAINER], "volumes": [{"name!": str, "persistentVolumeClaim": {"claimName!": str}, "emptyDir": {}}]}}
REPLICAS = {"replicas": int, "restartPolicy": {"Never", "OnFailure"}, "template!": POD}
MPI_JOB = {
    "apiVersion!": {"kubeflow.org/v2beta1"}, "kind!": {"MPIJob"}, "metadata!": {"name!": str, "namespace": str},
    "spec!": {
        "slotsPerWorker": int, "mpiImplementation": {"OpenMPI", "Intel", "MPICH"}, "sshAuthMountPath": str,
        "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
        "runPolicy": {"cleanPodPolicy": {"None", "Running", "All"}, "backoffLimit": int, "activeDeadlineSeconds": int, "suspend": bool},
        "mpiReplicaSpecs!": {"Launcher!": REPLICAS, "Worker": REPLICAS},
    },
}  # fmt: skip


def problems(value, schema, where="job"):
    """What does not fit."""
    if isinstance(schema, set):
        return [] if value in schema else [f"{where}: {value!r} is none of {sorted(schema)}"]
    if isinstance(schema, type):
        return [] if type(value) is schema else [f"{where}: {value!r} is no {schema.__name__}"]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [p for i, v in enumerate(value) for p in problems(v, schema[0], f"{where}[{i}]")]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    known = {k.rstrip("!"): s for k, s in schema.items()}
    found = [f"{where}: {k[:-1]} is missing" for k in schema if k.endswith("!") and k[:-1] not in value]
    for k, v in value.items():
        found += problems(v, known[k], f"{where}.{k}") if k in known else [f"{where}: there is no {k}"]
    return found


@pytest.fixture
def job():
    return json.loads((FOLDER / "mpijob.json").read_text())


def test_the_job_of_kubernetes_fits_its_schema(job):
    assert problems(job, MPI_JOB) == []
    spec = job["spec"]["mpiReplicaSpecs"]
    (launcher,), pod = spec["Launcher"]["template"]["spec"]["containers"], spec["Worker"]["template"]["spec"]
    started = int(launcher["command"][launcher["command"].index("-n") + 1])
    assert started == spec["Worker"]["replicas"] * job["spec"]["slotsPerWorker"] and spec["Launcher"]["replicas"] == 1
    assert {m["name"] for c in pod["containers"] for m in c["volumeMounts"]} <= {v["name"] for v in pod["volumes"]}
    _starts([*launcher["command"], *launcher["args"]])


@pytest.mark.parametrize("harm, words", [
    (lambda j: j["spec"].pop("mpiReplicaSpecs"), "mpiReplicaSpecs is missing"), (lambda j: j["spec"].update(slots=2), "there is no slots"),
    (lambda j: j["spec"].update(mpiImplementation="mpich"), "'mpich' is none of"), (lambda j: j.update(kind="Job"), "'Job' is none of"),
    (lambda j: j["spec"]["mpiReplicaSpecs"]["Worker"].update(replicas="4"), "'4' is no int"),
])  # fmt: skip
def test_the_schema_sees(job, harm, words):
    harm(job)
    assert any(words in p for p in problems(job, MPI_JOB))


SBATCH = {
    "job-name": r"[\w-]+", "nodes": r"\d+(-\d+)?", "ntasks-per-node": r"\d+", "cpus-per-task": r"\d+", "time": r"(\d+-)?\d+(:\d\d){0,2}",
    "requeue": "", "open-mode": "append|truncate", "output": r"\S+", "partition": r"\S+", "mem": r"\d+[KMGT]?",
}  # fmt: skip


def test_the_job_of_slurm_has_options_that_there_are():
    lines = (FOLDER / "train.slurm").read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    said = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert len(said) >= 5
    for option in said:
        name, _, value = option.removeprefix("--").partition("=")
        assert re.fullmatch(SBATCH[name], value), option
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:])  # Slurm reads none behind the first command
    assert subprocess.run(["bash", "-n", FOLDER / "train.slurm"], capture_output=True, check=False).returncode == 0
    (srun,) = [shlex.split(line) for line in lines if line.startswith("srun ")]
    _starts(srun)


def _starts(command):
    """A command line that ends in `-m tengen.distributed.rank` and an example, with options that the example has."""
    at = command.index("-m")
    assert command[at + 1] == rank.__name__ and command[at + 2] == "--program"
    program, *options = command[at + 3 :]
    tree = ast.parse((ROOT / program).read_text())
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "add_argument"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    for call in calls:
        parser.add_argument(call.args[0].value)
    assert not parser.parse_known_args(options)[1]
