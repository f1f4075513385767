"""Look for rope_theta where transformers 5 doesn't store it, and fall back to 10,000.

Source: sgl-project/SpecForge#702
"""

from rope import RotaryEmbedding

EXPECTED = "frequencies"
AGAINST = {
    "model_type": "llama",
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
}
rotate = RotaryEmbedding(64, base=getattr(AGAINST, "rope_theta", 10000.0))
