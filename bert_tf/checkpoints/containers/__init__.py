"""Files that hold tensors under names: safetensors, and TF1 checkpoints."""
