"""Certified optical switching schedules for collective communication.

The names below are the whole Python API; each is imported when first used, so that ``import lumenfarm`` is cheap.

>>> import lumenfarm
>>> job = lumenfarm.generate("all-reduce-rd", gpus=8, message_bytes=2**20)
>>> fabric = lumenfarm.Fabric(1, link_gbps=800, alpha_ns=500, delta_ns=500, reconfig_delay_ns=2_000)
>>> lumenfarm.synthesize(job, fabric).reconfigurations
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumenfarm.api import load_candidates, synthesize, synthesize_shifts, verify_schedule
    from lumenfarm.collectives import generate, shift_steps
    from lumenfarm.errors import EnvironmentFailure, InputError, LumenFarmError, UnreachableError
    from lumenfarm.formats import dump_collective, dump_schedule, load_collective, load_schedule, load_topologies
    from lumenfarm.matrix import PairMatrix
    from lumenfarm.model import Collective, Fabric, Latency, Pattern, Step, Topology
    from lumenfarm.schedule import Schedule
    from lumenfarm.synthesis import Synthesis

_HOME = {
    "lumenfarm.api": ("load_candidates", "synthesize", "synthesize_shifts", "verify_schedule"),
    "lumenfarm.collectives": ("generate", "shift_steps"),
    "lumenfarm.errors": ("EnvironmentFailure", "InputError", "LumenFarmError", "UnreachableError"),
    "lumenfarm.formats": ("dump_collective", "dump_schedule", "load_collective", "load_schedule", "load_topologies"),
    "lumenfarm.matrix": ("PairMatrix",),
    "lumenfarm.model": ("Collective", "Fabric", "Latency", "Pattern", "Step", "Topology"),
    "lumenfarm.schedule": ("Schedule",),
    "lumenfarm.synthesis": ("Synthesis",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Collective",
    "EnvironmentFailure",
    "Fabric",
    "InputError",
    "Latency",
    "LumenFarmError",
    "PairMatrix",
    "Pattern",
    "Schedule",
    "Step",
    "Synthesis",
    "Topology",
    "UnreachableError",
    "dump_collective",
    "dump_schedule",
    "generate",
    "load_candidates",
    "load_collective",
    "load_schedule",
    "load_topologies",
    "shift_steps",
    "synthesize",
    "synthesize_shifts",
    "verify_schedule",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
