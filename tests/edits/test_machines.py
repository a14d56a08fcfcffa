"""Edits for several machines, read by torchrun, accelerate and DeepSpeed themselves."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from oomdoctor.case import Value
from oomdoctor.edits.machines import each_of, over_machines, settings_over_machines
from oomdoctor.edits.render import hows
from tests.program import ROOT, document, oomdoctor

CARD = ROOT / "examples" / "llama2-7b-full-3090.yaml"
RUN: dict[str, Value] = {"gpus.count": 16, "gpus.nodes": 2, "mixed_precision": "bf16", "method": "full"}


def edits(change: dict[str, Value], framework: str) -> dict[str, str]:
    run = {**RUN, "framework": framework, "parallelism": "ddp", "offload": "none"}
    found = hows(change, {key: run[key] for key in change}, {**run, **change})
    return {how.file: how.after for how in found}


def command(lines: str, program: str) -> list[str]:
    """The arguments of the line that starts this program."""
    line = next(line for line in lines.splitlines() if program in line and not line.startswith("#"))
    return shlex.split(line.split(program, 1)[1])


@pytest.mark.parametrize("parallelism", ["zero2", "zero3"])
def test_torchrun_takes_the_launch_of_a_trainer(parallelism: str) -> None:
    from torch.distributed.run import get_args_parser

    said = edits({"parallelism": parallelism}, "deepspeed")
    found = get_args_parser().parse_args(command(said["shell"], "torchrun"))
    assert (found.nnodes, found.nproc_per_node, found.node_rank, found.master_addr) == ("2", "8", 0, "MAIN_IP")


@pytest.mark.parametrize(("parallelism", "offload"), [("zero2", "none"), ("zero2", "optimizer"), ("zero3", "params")])
def test_deepspeed_takes_its_config(parallelism: str, offload: str) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    said = json.loads(edits({"parallelism": parallelism, "offload": offload}, "deepspeed")["ds_config.json"])
    for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"):
        said[key] = 1  # what transformers puts in the place of "auto"
    said["bf16"]["enabled"] = True
    found = DeepSpeedConfig(said)
    assert found.zero_config.stage == int(parallelism[-1])
    where = found.zero_config.offload_optimizer
    assert (where is not None and where.device == "cpu") == (offload != "none")


@pytest.mark.parametrize("parallelism", ["zero2", "zero3", "fsdp"])
def test_accelerate_takes_its_config_and_launch(parallelism: str, tmp_path: Path) -> None:
    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser

    said = edits({"parallelism": parallelism}, "accelerate")
    file = tmp_path / "accelerate.yaml"
    file.write_text(said["accelerate.yaml"])
    found = ClusterConfig.from_yaml_file(str(file))
    assert (found.num_machines, found.num_processes, found.machine_rank) == (2, 16, 0)
    assert (found.main_process_ip, found.main_process_port) == ("MAIN_IP", 29500)
    if parallelism != "fsdp":
        assert found.deepspeed_config["deepspeed_multinode_launcher"] == "standard"
    arguments = launch_command_parser().parse_args(command(said["shell"], "accelerate launch"))
    assert (arguments.machine_rank, arguments.training_script) == (0, "train.py")


def test_one_machine_is_said_as_before() -> None:
    one = {**RUN, "gpus.nodes": 1}
    assert settings_over_machines({"num_machines": 1, "num_processes": 16}, one) == {
        "num_machines": 1,
        "num_processes": 16,
    }
    assert over_machines(["torchrun --nproc_per_node 16 train.py"], one) == ["torchrun --nproc_per_node 16 train.py"]
    assert over_machines(["export A=1"], RUN) == ["export A=1"]
    assert each_of({"gpus.count": 15, "gpus.nodes": 2}) is None


def test_every_entry_is_what_stands_in_some_framework() -> None:
    entries = yaml.safe_load((ROOT / "rules" / "launching" / "machines.yaml").read_text())
    everything = "".join(path.read_text() for path in (ROOT / "rules" / "frameworks").glob("*.yaml"))
    for entry in entries.values():
        assert entry["find"].replace("{count}", "@gpus.count@") in everything


def test_a_plan_over_two_machines_splits_over_all_cards() -> None:
    found = document("plan", CARD, "--gpus", "8x A100-SXM4-40GB", "--nodes", "2", "--no-gpu", "--no-input")
    facts = {fact["key"]: fact["value"] for fact in found["facts"]}
    assert (facts["gpus.count"], facts["gpus.nodes"], facts["parallelism"]) == (16, 2, "ddp")
    assert found["plan"]["prefer"] == "sharded" and found["plan"]["fits"]
    shell = next(how["after"] for how in found["plan"]["steps"][0]["how"] if how["file"] == "shell")
    assert "--nnodes 2 --nproc_per_node 8" in shell
    alone = document("plan", CARD, "--gpus", "8x A100-SXM4-40GB", "--no-gpu", "--no-input", "--prefer", "sharded")
    of_16, of_8 = (each["plan"]["steps"][-1]["bill_after"]["needed_bytes"] for each in (found, alone))
    assert of_16 < of_8  # the states are divided among twice as many cards


@pytest.mark.parametrize(
    "arguments", [("--nodes", "2"), ("--gpus", "RTX 3090", "--nodes", "0"), ("--gpus", "RTX 3090", "--nodes", "x")]
)
def test_a_number_of_machines_that_says_nothing_is_refused(arguments: tuple[str, ...]) -> None:
    done = oomdoctor("plan", CARD, *arguments)
    assert done.returncode == 2 and "--nodes" in done.stderr and len(done.stderr.splitlines()) == 1
