"""The settings: one validated, frozen value from defaults < `headway.toml` < `HEADWAY_*` < flags."""

from headway.config.checking import load
from headway.config.settings import Settings
from headway.config.showing import Explained, explain, masked

__all__ = ["Explained", "Settings", "explain", "load", "masked"]
