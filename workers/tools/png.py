"""Images as PNG files."""

import io

from torch import Tensor


def png(image: Tensor) -> bytes:
    """Return an image [C, H, W] uint8, with one channel or three, as a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    pixels = image.permute(1, 2, 0).numpy()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(buffer, "png")
    return buffer.getvalue()
