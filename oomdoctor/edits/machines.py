"""An edit for one machine -> the same for several: rules/launching for command lines, and the keys of config files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Value

_PORT = 29500  # torch's default rendezvous port
_RANKS = "# on each machine, with its own rank: 0 on MAIN_IP, then 1, 2, ..."


def nodes_of(run: Mapping[str, Value]) -> int:
    """The machines of a run; 1 where nobody speaks of more."""
    nodes = run.get("gpus.nodes")
    return nodes if isinstance(nodes, int) and nodes >= 1 else 1


def each_of(run: Mapping[str, Value]) -> int | None:
    """The cards of one machine; None where they are unknown, or do not divide evenly."""
    count, nodes = run.get("gpus.count"), nodes_of(run)
    return count // nodes if isinstance(count, int) and count % nodes == 0 else None


def over_machines(lines: list[str], run: Mapping[str, Value]) -> list[str]:
    """The lines of a shell with the launch over all machines, and above them where to run it."""
    each = each_of(run)
    if nodes_of(run) < 2 or each is None:
        return lines
    numbers = {"count": run["gpus.count"], "nodes": nodes_of(run), "each": each}
    spread = [_spread(line, numbers) for line in lines]
    return spread if spread == lines else [_RANKS, *spread]


def _spread(line: str, numbers: Mapping[str, Any]) -> str:
    for entry in knowledge.load("launching").values():
        find = entry["find"].format(**numbers)
        if find in line.split(" #", maxsplit=1)[0]:
            return line.replace(find, entry["several"].format(**numbers))
    return line


def settings_over_machines(settings: Mapping[str, Any], run: Mapping[str, Value]) -> dict[str, Any]:
    """The keys of a config file that say on how many machines it runs: accelerate's, and Lightning's Trainer."""
    each = each_of(run)
    if nodes_of(run) < 2 or each is None:
        return dict(settings)
    found = dict(settings)
    if "num_machines" in found:
        found.update(
            num_machines=nodes_of(run),
            machine_rank=0,
            main_process_ip="MAIN_IP",
            main_process_port=_PORT,
            rdzv_backend="static",
            same_network=True,
        )
        if "deepspeed_config" in found:  # else accelerate asks for pdsh and a hostfile
            found["deepspeed_config"] = {**found["deepspeed_config"], "deepspeed_multinode_launcher": "standard"}
    if "devices" in found:
        found.update(devices=each, num_nodes=nodes_of(run))
    return found
