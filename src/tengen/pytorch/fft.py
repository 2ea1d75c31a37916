"""`torch.fft`: Tengen's transforms, which take PyTorch's `dim`."""

from tengen.fft import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)
from tengen.ops.calls import also_called
from tengen.pytorch.functions import in_words

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2", "irfftn",
    "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
in_words(globals(), __all__)
for _name in __all__:
    globals()[_name] = also_called(globals()[_name], [("dim", "axes")])
