"""The CosyVoice networks, their checkpoints and their sampling: plain torch, no service code."""
