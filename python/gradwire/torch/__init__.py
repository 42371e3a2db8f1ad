"""Two lines for a script that uses DistributedDataParallel::

    import gradwire.torch
    gradwire.torch.attach(model, "onebit+ef")
"""

from gradwire.torch._attach import Handle, attach

__all__ = ["Handle", "attach"]
