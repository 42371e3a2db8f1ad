"""Two lines for a script that uses DistributedDataParallel::

    import gradwire.torch
    gradwire.torch.attach(model, "onebit+ef")
"""

from gradwire.torch._attach import Handle, attach
from gradwire.torch._metrics import Metrics, metrics

__all__ = ["Handle", "Metrics", "attach", "metrics"]
