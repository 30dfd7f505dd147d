"""Small grids that train in seconds."""

TINY_BACKBONE = "vit_small_patch16_224: {patch_size: 8, embed_dim: 16, depth: 1, num_heads: 2}"


def tiny_grid(
    *,
    name: str = "tiny",
    heads: str = "[supervised]",
    seeds: str = "2",
    epochs: int = 2,
    train: str = "",
    extra: str = "",
) -> str:
    """Return a grid whose runs take about a second each, once the template is warm."""
    changes = ", ".join(
        part for part in (f"epochs: {epochs}", "warmup_epochs: 0", "batch_size: 128", train) if part
    )
    return f"""\
name: {name}
backbones:
  - {TINY_BACKBONE}
datasets: [digits]
heads: {heads}
seeds: {seeds}
recipe: quickstart
train: {{{changes}}}
resources: {{gpus_per_node: 0}}
{extra}
"""
