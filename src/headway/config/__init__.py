"""The settings: one validated, frozen value from defaults < `headway.toml` < `HEADWAY_*` < flags."""

from headway.config.explain import Explained, explain, holds_password, masked
from headway.config.load import load
from headway.config.settings import Settings

__all__ = ["Explained", "Settings", "explain", "holds_password", "load", "masked"]
